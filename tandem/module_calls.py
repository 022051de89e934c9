"""Which modules the calls of a compiled function were made in, so that an error of its program names them as eager code does.

A program runs when its modules have returned; the runtime tells which of the noted calls failed (`error._call`).
"""

from __future__ import annotations

import threading

_local = threading.local()
running: list[None] = []  # one for each compiled function that runs, in any thread: modules look at this first


def begin() -> list | None:
    """A compiled function begins: modules add (first call, call behind the last, module), inner ones first. For `end`."""
    running.append(None)
    before = getattr(_local, "ranges", None)
    _local.ranges = []
    return before


def end(before: list | None):
    running.pop()
    _local.ranges = before


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


def add(first: int, behind: int, module):
    ranges = getattr(_local, "ranges", None)
    if ranges is not None:  # not what td.scan describes while only another thread runs a compiled function
        ranges.append((first, behind, module))
