"""Activations as layers. `inplace` is accepted as PyTorch has it and changes nothing: results are tensors of their own."""

from __future__ import annotations

from tandem.nn import functional as F
from tandem.nn import init as _init
from tandem.nn.module import Module
from tandem.nn.parameter import Parameter, empty_tensor


class _Plain(Module):
    """An activation with an `inplace` argument and nothing else."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_Plain):
    """max(x, 0)."""

    def forward(self, input):
        return F.relu(input)


class ReLU6(_Plain):
    """min(max(x, 0), 6)."""

    def forward(self, input):
        return F.relu6(input)


class SELU(_Plain):
    """1.0507 * elu(x, 1.6733)."""

    def forward(self, input):
        return F.selu(input)


class SiLU(_Plain):
    """x * sigmoid(x)."""

    def forward(self, input):
        return F.silu(input)


class Mish(_Plain):
    """x * tanh(softplus(x))."""

    def forward(self, input):
        return F.mish(input)


class Hardsigmoid(_Plain):
    """min(max(x + 3, 0), 6) / 6."""

    def forward(self, input):
        return F.hardsigmoid(input)


class Hardswish(_Plain):
    """x * min(max(x + 3, 0), 6) / 6."""

    def forward(self, input):
        return F.hardswish(input)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, input):
        return F.sigmoid(input)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, input):
        return F.tanh(input)


class LogSigmoid(Module):
    """log(sigmoid(x))."""

    def forward(self, input):
        return F.logsigmoid(input)


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, input):
        return F.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, input):
        return F.tanhshrink(input)


class ELU(Module):
    """x where positive, alpha * (exp(x) - 1) elsewhere."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input):
        return F.elu(input, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class CELU(ELU):
    """x where positive, alpha * (exp(x / alpha) - 1) elsewhere."""

    def forward(self, input):
        return F.celu(input, self.alpha)


class GELU(Module):
    """x * P(X < x) for a normal X; approximate="tanh" computes it by a tanh."""

    def __init__(self, approximate: str = "none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input):
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class LeakyReLU(Module):
    """x where positive, negative_slope * x elsewhere."""

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False):
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input):
        return F.leaky_relu(input, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class RReLU(Module):
    """x where positive, elsewhere x times a slope: drawn for each element while training, the mean of the range otherwise."""

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False):
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input):
        return F.rrelu(input, self.lower, self.upper, self.training)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}"


class PReLU(Module):
    """x where positive, weight * x elsewhere; one weight, or one for each channel.

    >>> td.nn.PReLU()(td.tensor([-2.0, 2.0]))
    tensor([-0.5000,  2.0000], grad_fn=<prelu backward>)
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(empty_tensor(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self):
        _init.constant_(self.weight, self.init)

    def forward(self, input):
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Threshold(Module):
    """x where larger than threshold, value elsewhere."""

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input):
        return F.threshold(input, self.threshold, self.value)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}"


class Hardtanh(Module):
    """x limited to [min_val, max_val]."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False, min_value: float | None = None,
                 max_value: float | None = None):  # fmt: skip
        super().__init__()
        min_val = min_val if min_value is None else min_value  # PyTorch's older names
        max_val = max_val if max_value is None else max_value
        if max_val <= min_val:
            raise ValueError(f"min_val {min_val} must be smaller than max_val {max_val}")
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    def forward(self, input):
        return F.hardtanh(input, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class Hardshrink(Module):
    """x where |x| > lambd, 0 elsewhere."""

    def __init__(self, lambd: float = 0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input):
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Softshrink(Hardshrink):
    """x moved towards 0 by lambd, and 0 where |x| <= lambd."""

    def forward(self, input):
        return F.softshrink(input, self.lambd)


class Softplus(Module):
    """A smooth max(x, 0): log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input):
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class GLU(Module):
    """The first half of an axis times the sigmoid of the second half."""

    def __init__(self, dim: int = -1):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class _AlongAxis(Module):
    def __init__(self, dim: int | None = None):
        super().__init__()
        self.dim = dim

    def _axis(self, input) -> int:
        """PyTorch's choice where none was made."""
        if self.dim is not None:
            return self.dim
        return 0 if input.ndim in (0, 1, 3) else 1

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongAxis):
    """exp(x) / sum(exp(x)) along an axis."""

    def forward(self, input):
        return F.softmax(input, self._axis(input))


class LogSoftmax(_AlongAxis):
    """log(softmax(x)) along an axis."""

    def forward(self, input):
        return F.log_softmax(input, self._axis(input))


class Softmin(_AlongAxis):
    """softmax(-x) along an axis."""

    def forward(self, input):
        return F.softmin(input, self._axis(input))


class Softmax2d(Module):
    """softmax over the channels of every pixel. input: (N, C, H, W) or (C, H, W)"""

    def forward(self, input):
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d takes (N, C, H, W) or (C, H, W), not {input.shape}")
        return F.softmax(input, -3)
