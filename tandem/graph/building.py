"""What this thread builds: the builders of the graphs that are being made, the innermost last (ir.py)."""

from __future__ import annotations

import threading

from tandem import _runtime

_local = threading.local()


def _stack() -> list:
    try:
        return _local.builders
    except AttributeError:
        _local.builders = []
        return _local.builders


class outside_graphs:
    """Operators run at once in here, whatever is being built around it."""

    __slots__ = ("_depth", "_saved")

    def __enter__(self):
        stack = _stack()
        self._depth = _runtime.enter_trace() - 1
        _runtime.exit_trace()
        self._saved = None
        if stack or self._depth:
            self._saved = stack[:]
            stack.clear()
            for _ in range(self._depth):
                _runtime.exit_trace()

    def __exit__(self, *exc):
        if self._saved is not None:
            for _ in range(self._depth):
                _runtime.enter_trace()
            _stack()[:] = self._saved
