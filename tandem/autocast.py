"""Mixed precision: td.autocast, and td.GradScaler for float16.

Inside `with td.autocast("cuda", td.bfloat16):` products, convolutions and attention take their float32 operands in 16 bits,
which is what tensor cores are fast at, and give 16-bit results; everything else computes as ever. Parameters stay float32, and
so do their gradients. Reductions accumulate in float32 in any case.
"""

from __future__ import annotations

import functools
from threading import get_ident

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.autograd.modes import no_grad
from tandem.errors import ValueRangeError

_DEFAULT = {"cuda": dtypes.bfloat16, "cpu": dtypes.bfloat16}


def _mode(device_type: str, dtype) -> int:
    return 1 + dtype.code + (16 if device_type == "cuda" else 0)


class autocast:
    """A scope, or a decorator, in which products run in a 16-bit type.

    >>> with td.autocast("cpu", td.bfloat16):
    ...     td.matmul(td.ones(2, 2), td.ones(2, 2)).dtype
    tandem.bfloat16
    """

    def __init__(self, device_type: str = "cuda", dtype=None, enabled: bool = True, cache_enabled: bool | None = None):
        device_type = str(device_type).partition(":")[0]
        if device_type not in _DEFAULT:
            raise ValueRangeError("autocast", f"device_type is {device_type!r}; it must be 'cuda' or 'cpu'")
        dtype = _DEFAULT[device_type] if dtype is None else dtypes.as_dtype(dtype)
        if dtype not in (dtypes.bfloat16, dtypes.float16):
            raise ValueRangeError("autocast", f"dtype is {dtype}; it must be bfloat16 or float16")
        self._mode = _mode(device_type, dtype) if enabled else 0
        self._before: dict[int, list[int]] = {}  # by thread

    def __enter__(self):
        self._before.setdefault(get_ident(), []).append(_runtime.set_autocast_mode(self._mode))
        return self

    def __exit__(self, *exc):
        if before := self._before.get(get_ident()):  # see _Scope in autograd/modes.py
            _runtime.set_autocast_mode(before.pop())

    def __call__(self, fn):
        @functools.wraps(fn)
        def wrapped(*args, **kwargs):
            with self:
                return fn(*args, **kwargs)

        return wrapped


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    mode = _runtime.autocast_mode()
    return mode != 0 and (mode > 16) == (device_type == "cuda")


class GradScaler:
    """Scales losses up so that float16 gradients do not vanish, and steps whose gradients overflowed away.

    >>> w = td.ones(2, requires_grad=True)
    >>> optimizer, scaler = td.optim.SGD([w], lr=0.5), td.GradScaler("cpu")
    >>> scaler.scale((w * 2).sum()).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> w
    tensor([0., 0.], requires_grad=True)
    """

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True):  # fmt: skip
        self._scale = float(init_scale)
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._enabled = enabled
        self._good_steps = 0
        self._found: dict[int, bool] = {}  # optimizers whose gradients were unscaled since the last update

    def is_enabled(self) -> bool:
        return self._enabled

    def get_scale(self) -> float:
        return self._scale if self._enabled else 1.0

    def scale(self, outputs):
        """A loss, or several, multiplied by the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, (tuple, list)):
            return type(outputs)(self.scale(x) for x in outputs)
        return outputs * self._scale

    def unscale_(self, optimizer) -> None:
        """Divides the gradients by the scale, for instance before they are clipped. Once per step."""
        if not self._enabled:
            return
        if id(optimizer) in self._found:
            raise ValueRangeError("GradScaler.unscale_", "was already called on this optimizer since the last update()")
        finite = None
        with no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.grad.mul_(1.0 / self._scale)
                        good = F.all(F.isfinite(p.grad))
                        finite = good if finite is None else F.logical_and(finite, good)
        self._found[id(optimizer)] = finite is not None and not bool(finite)

    def step(self, optimizer, *args, **kwargs):
        """optimizer.step(), unless a gradient is infinite or NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if id(optimizer) not in self._found:
            self.unscale_(optimizer)
        return None if self._found[id(optimizer)] else optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | None = None) -> None:
        """Lowers the scale after an overflow; raises it after many steps without one."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif any(self._found.values()):
            self._scale *= self._backoff_factor
            self._good_steps = 0
        else:
            self._good_steps += 1
            if self._good_steps == self._growth_interval:
                self._scale *= self._growth_factor
                self._good_steps = 0
        self._found.clear()

    def state_dict(self) -> dict:
        return {
            "scale": self._scale, "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval, "_growth_tracker": self._good_steps,
        } if self._enabled else {}  # fmt: skip

    def load_state_dict(self, state_dict: dict) -> None:
        if not self._enabled:
            return
        self._scale, self._good_steps = state_dict["scale"], state_dict["_growth_tracker"]
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
