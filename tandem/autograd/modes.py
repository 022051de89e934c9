"""Scopes that switch recording on and off. Each works as a context manager and as a decorator."""

from __future__ import annotations

import functools
from threading import get_ident

from tandem import _runtime, forks


class _Scope:
    """`_switch` turns something on and gives what was before, `_restore` takes that back. A scope may be
    entered again inside itself, and by several threads at once: each takes back what it found."""

    _of_thread = staticmethod(get_ident)

    def __enter__(self):
        before = self._switch()
        self.__dict__.setdefault("_stacks", {}).setdefault(self._of_thread(), []).append(before)
        return self

    def __exit__(self, *exc):
        if entered := self._entered():  # not by this thread, if it collects a generator of another one that is inside
            self._restore(entered.pop())

    def _entered(self) -> list:
        return self.__dict__.get("_stacks", {}).get(self._of_thread(), [])

    def __call__(self, fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            with self._again():
                return fn(*args, **kwargs)

        return wrapper

    def _again(self):
        return type(self)()


class no_grad(_Scope):
    """Inside, operators are not recorded and results do not require gradients.

    >>> x = td.ones(2, requires_grad=True)
    >>> with td.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    _enabled = False

    def _switch(self):
        return _runtime.set_grad_enabled(self._enabled)

    def _restore(self, before):
        _runtime.set_grad_enabled(before)


class enable_grad(no_grad):
    """Inside, operators are recorded again."""

    _enabled = True


class set_grad_enabled(_Scope):
    """Switches recording on or off: at once, and back at the end if used as a context manager."""

    def __init__(self, mode: bool):
        self._mode = bool(mode)
        self._before = _runtime.set_grad_enabled(self._mode)

    def _again(self):
        return set_grad_enabled(self._mode)

    def __call__(self, fn):
        _runtime.set_grad_enabled(self._before)  # decorating is not a switch
        return super().__call__(fn)

    def _switch(self):
        # The constructor has switched already; what was before it comes back at the end.
        now = _runtime.set_grad_enabled(self._mode)
        return now if self._entered() else self._before

    def _restore(self, before):
        _runtime.set_grad_enabled(before)


class inference_mode(_Scope):
    """Like no_grad, and tensors made inside can never take part in gradients later."""

    def __init__(self, mode: bool = True):
        self._mode = mode

    def _again(self):
        return inference_mode(self._mode)

    def _switch(self):
        return _runtime.set_grad_enabled(not self._mode and _runtime.grad_enabled()), _runtime.set_inference(self._mode)

    def _restore(self, before):
        _runtime.set_grad_enabled(before[0])
        _runtime.set_inference(before[1])


# Scopes of all threads that are not left, in order, each with the setting that it found.
_checking: list[list[bool]] = []
_lock = forks.lock()  # guards them


class detect_anomaly(_Scope):
    """Inside, every result and every gradient is checked, of all threads; a NaN raises an error that names the operator and
    the line."""

    _of_thread = staticmethod(lambda: 0)  # the setting is that of all threads

    def _switch(self):
        return self._begin(True)

    def _begin(self, mode: bool, before: bool | None = None) -> list[bool]:
        with _lock:
            found = _runtime.set_anomaly_detection(mode)
            _checking.append([found if before is None else before])
            return _checking[-1]

    def _restore(self, scope):
        """Another thread may have entered one within it, which then takes back what this one found."""
        with _lock:
            i = next(i for i, s in enumerate(_checking) if s is scope)
            if i + 1 == len(_checking):
                _runtime.set_anomaly_detection(scope[0])
            else:
                _checking[i + 1][0] = scope[0]
            del _checking[i]


class set_detect_anomaly(detect_anomaly):
    """detect_anomaly, on or off from the call on; as a scope, for its length."""

    def __init__(self, mode: bool, check_nan: bool = True):
        super().__init__()
        self._mode = bool(mode)
        self._before_call = _runtime.set_anomaly_detection(self._mode)

    def _switch(self):
        return self._begin(self._mode, self._before_call)


def is_grad_enabled() -> bool:
    """Whether operators are being recorded in this thread."""
    return _runtime.grad_enabled()
