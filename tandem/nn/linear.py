"""Linear maps."""

from __future__ import annotations

import math

from tandem.nn import functional as F
from tandem.nn import init
from tandem.nn.module import Module
from tandem.nn.parameter import Parameter, empty_tensor


def empty_parameter(*shape, device=None, dtype=None) -> Parameter:
    """A parameter whose values are still to be set."""
    return Parameter(empty_tensor(*shape, device=device, dtype=dtype))


class Identity(Module):
    """Gives back what it gets; takes any arguments."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, input):
        return input


class Linear(Module):
    """x @ weight.T + bias.

    input: (*, in_features) -> (*, out_features). weight: (out_features, in_features), bias: (out_features)

    >>> td.nn.Linear(20, 30)(td.ones(128, 20)).shape
    (128, 30)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device=None, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = empty_parameter(out_features, in_features, device=device, dtype=dtype)
        self.register_parameter("bias", empty_parameter(out_features, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input):
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """Linear under the name that PyTorch gives the output projection of MultiheadAttention."""


class Bilinear(Module):
    """x1 @ weight[o] @ x2 + bias[o] for each output o.

    x1: (*, in1_features), x2: (*, in2_features) -> (*, out_features)

    >>> td.nn.Bilinear(2, 3, 4)(td.ones(5, 2), td.ones(5, 3)).shape
    (5, 4)
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device=None, dtype=None
    ):
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = empty_parameter(out_features, in1_features, in2_features, device=device, dtype=dtype)
        self.register_parameter("bias", empty_parameter(out_features, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1, input2):
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
