"""Mixed precision under PyTorch's path: td.amp.autocast is td.autocast, td.amp.GradScaler is td.GradScaler."""

from __future__ import annotations

import functools

from tandem import _runtime, dtypes
from tandem.autocast import GradScaler, autocast

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


def is_autocast_available(device_type: str) -> bool:
    """Whether td.autocast knows the kind of device.

    >>> td.amp.is_autocast_available("cpu")
    True
    """
    return device_type in ("cpu", "cuda")


class _mode:
    """A scope with an earlier state of autocast."""

    def __init__(self, mode: int):
        self._mode = mode

    def __enter__(self):
        self._before = _runtime.set_autocast_mode(self._mode)

    def __exit__(self, *exc):
        _runtime.set_autocast_mode(self._before)


def custom_fwd(fwd=None, *, device_type: str = "cuda", cast_inputs=None):
    """Decorates forward of an autograd.Function: its backward, marked custom_bwd, runs under the same autocast.

    cast_inputs: inside autocast, floating tensors come in this type and forward runs without autocast.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def wrapped(ctx, *args, **kwargs):
        ctx._autocast = mode = _runtime.autocast_mode()
        if cast_inputs is None or not mode:
            return fwd(ctx, *args, **kwargs)
        ctx._autocast, dtype = 0, dtypes.as_dtype(cast_inputs)

        def cast(x):
            floating = isinstance(x, _runtime.Tensor) and x.dtype.is_inexact and x.dtype is not dtypes.float64
            return x.to(dtype) if floating else x

        with _mode(0):
            return fwd(ctx, *[cast(a) for a in args], **{k: cast(v) for k, v in kwargs.items()})

    return wrapped


def custom_bwd(bwd=None, *, device_type: str = "cuda"):
    """Decorates backward of an autograd.Function whose forward is marked custom_fwd: it runs under forward's autocast."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def wrapped(ctx, *grads):
        with _mode(ctx._autocast):
            return bwd(ctx, *grads)

    return wrapped
