"""Tracebacks without Tandem's frames where others than the interpreter print them: IPython, logging, pytest.

Each has a way of its own to be told; they are told when the first error is made, as far as they are imported by then. So a program
that never fails pays nothing.
"""

from __future__ import annotations

import sys

_told: set[str] = set()


def attach(kind: type, is_user, hide_frames, hides) -> None:
    """Has readers of errors of this kind see what hide_frames leaves; hides: whether it leaves out anything now."""
    if "pytest" in sys.modules:
        _mark_frames(kind, is_user, hides)
    if "logging" in sys.modules and "logging" not in _told:
        _told.add("logging")
        _tell_logging(kind, hide_frames)
    if "IPython" in sys.modules and "IPython" not in _told:
        _tell_ipython(kind, hide_frames)


def _mark_frames(kind: type, is_user, hides) -> None:
    """pytest leaves out frames whose module says so; only for our errors, and not if all frames are asked for."""

    def hidden(excinfo) -> bool:
        return isinstance(excinfo.value, kind) and hides()

    frame = sys._getframe(2)
    while frame is not None:
        if not is_user(frame.f_code):
            frame.f_globals.setdefault("__tracebackhide__", hidden)
        frame = frame.f_back


def _tell_logging(kind: type, hide_frames) -> None:
    import logging

    before = logging.getLogRecordFactory()

    def record(*args, **kwargs):
        made = before(*args, **kwargs)
        error = made.exc_info[1] if isinstance(made.exc_info, tuple) else None
        if isinstance(error, kind):
            made.exc_info = type(error), hide_frames(error), error.__traceback__
        return made

    logging.setLogRecordFactory(record)


def _tell_ipython(kind: type, hide_frames) -> None:
    shell = getattr(sys.modules["IPython"], "get_ipython", lambda: None)()
    if shell is None:
        return
    _told.add("IPython")
    show = (
        shell.showtraceback
    )  # of cells, of %run, and of a file given to ipython, which set_custom_exc would not reach

    def showtraceback(exc_tuple=None, *args, **kwargs):
        error = exc_tuple[1] if exc_tuple else sys.exc_info()[1]
        if isinstance(error, kind):
            exc_tuple = type(error), hide_frames(error), error.__traceback__
        return show(exc_tuple, *args, **kwargs)

    shell.showtraceback = showtraceback
