"""Eager autodiff: modes, backward, functional gradients, custom functions, hooks."""

from tandem.autograd import functional, grad_mode
from tandem.autograd.backward import backward, grad
from tandem.autograd.function import Function
from tandem.autograd.modes import (
    detect_anomaly,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_detect_anomaly,
    set_grad_enabled,
)
from tandem.autograd.variable import Variable

__all__ = [
    "Function", "Variable", "backward", "detect_anomaly", "enable_grad", "functional", "grad", "grad_mode", "inference_mode",
    "is_grad_enabled", "no_grad", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip


def __getattr__(name):
    if name in ("gradcheck", "gradgradcheck"):  # PyTorch has them here
        from tandem import testing

        return getattr(testing, name)
    raise AttributeError(f"module 'tandem.autograd' has no attribute {name!r}")
