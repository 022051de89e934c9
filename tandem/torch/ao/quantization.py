"""The stubs of PyTorch's quantisation, which pass values on as they are. td.quantize quantises: docs/quantization.md."""

from __future__ import annotations

from tandem import nn
from tandem.errors import UnsupportedError

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper"]


class QuantStub(nn.Identity):
    """Where quantised computation begins: passes its input on."""

    def __init__(self, qconfig=None):
        super().__init__()


class DeQuantStub(QuantStub):
    """Where quantised computation ends: passes its input on."""


class QuantWrapper(nn.Module):
    """A module between two stubs."""

    def __init__(self, module):
        super().__init__()
        self.quant, self.module, self.dequant = QuantStub(), module, DeQuantStub()

    def forward(self, x):
        return self.dequant(self.module(self.quant(x)))


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(name)

    def refuse(*args, **kwargs):
        raise UnsupportedError(
            f"torch.ao.quantization.{name}",
            "this is a part of PyTorch's quantisation",
            fix="use td.quantize: docs/quantization.md",
        )

    refuse.__name__ = name
    return refuse
