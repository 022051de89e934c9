"""Which modules the calls of a compiled function were made in, so that an error of its program names them as eager code does.

A program runs when its modules have returned; the runtime tells which of the noted calls failed (`error._call`).
"""

from __future__ import annotations

import threading

from tandem import _runtime

_local = threading.local()
active = 0  # how many compiled functions run, in any thread: others pay one look at this


class noting:
    """While a compiled function runs: `ranges` has (first call, call behind the last, module), inner modules first."""

    __slots__ = ("before", "ranges")

    def __enter__(self):
        global active
        self.ranges = []
        self.before = getattr(_local, "ranges", None)
        _local.ranges = self.ranges
        active += 1
        return self

    def __exit__(self, kind, error, traceback):
        global active
        active -= 1
        if error is not None:
            note(error, None)
        _local.ranges = self.before


def note(error: BaseException, module, first: int = 0):
    """Has the error name modules that returned before it was found, and the one around, if the call that failed was made in it."""
    from tandem.nn.module import _note_path

    call = getattr(error, "_call", None)
    if call is None:
        if module is not None:
            _note_path(module, error)
        return
    if not hasattr(error, "_modules_named"):
        error._modules_named = True
        for begin, end, inner in getattr(_local, "ranges", None) or ():
            if begin <= call < end:
                _note_path(inner, error)
    if module is not None and call >= first:
        _note_path(module, error)


def call(module, args, kwargs):
    """module(*args, **kwargs) inside of a compiled function."""
    ranges = getattr(_local, "ranges", None)
    first = _runtime.noted_calls() if ranges is not None else -1
    try:
        result = module.forward(*args, **kwargs) if module._hooks is None else module._hooks.call(module, args, kwargs)
    except Exception as error:
        note(error, module, first)
        raise
    if first >= 0:
        ranges.append((first, _runtime.noted_calls(), module))
    return result
