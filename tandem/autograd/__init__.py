"""Eager autodiff: modes, backward, functional gradients, custom functions, hooks."""

from tandem.aliases import from_above
from tandem.autograd import grad_mode
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
    "Function", "Variable", "backward", "detect_anomaly", "enable_grad", "grad", "grad_mode", "inference_mode",
    "is_grad_enabled", "no_grad", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip


__getattr__ = from_above(__name__)  # gradcheck, as PyTorch has it here
