"""Forks while other threads trace, compile or import.

Note [Forks]
A child of fork has one thread, and whatever the others were at stays as it was for ever: a lock that nobody releases, a module half
imported, collections switched off. So a fork waits until other threads have left what is inside of `compiling()`, for a minute at
most, and until they have imported the modules of this package that they are importing. What is left is put right in the child:
locks made by `lock()` are free, garbage is collected again, and an import that began at the last moment is forgotten, so that the
child begins it again. The runtime does the same for its own locks (src/fork_guard.h).
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref

PATIENCE = 60.0  # seconds: the other thread may be waiting for this one

_inside: dict[int, int] = {}  # thread -> how often it is inside of compiling()
_changed = threading.Condition(threading.Lock())  # guards all here
_forking: int | None = None  # the thread that forks: others do not begin to compile
_resting: set[int] = (
    set()
)  # threads that collect no garbage until their call of a compiled function compiles its program
_collects = True  # whether garbage was collected before the first thread came in
_locks: weakref.WeakSet = weakref.WeakSet()


def lock() -> threading.Lock:
    """A lock that is free in a forked child."""
    made = threading.Lock()
    _locks.add(made)
    return made


class compiling:
    """While inside, this thread traces or compiles: other threads do not fork, and no garbage is collected. Compiling makes
    thousands of small objects that stay, and would have Python look through all of the program's for cycles."""

    __slots__ = ()

    def __enter__(self):
        global _collects
        me = threading.get_ident()
        with _changed:
            if me not in _inside:
                _changed.wait_for(lambda: _forking in (None, me), PATIENCE)
            if not _inside:
                if not _resting:
                    _collects = gc.isenabled()
                gc.disable()
            _inside[me] = _inside.get(me, 0) + 1

    def __exit__(self, *exc):
        me = threading.get_ident()
        with _changed:
            _inside[me] -= 1
            if not _inside[me]:
                del _inside[me]
            _collect_again()
            _changed.notify_all()


def rest():
    """Inside of `compiling()`, for an operator that a compiled function calls: garbage is not collected until `collect()`. Its
    program is compiled soon, and one look through what all of its operators have left is enough."""
    _resting.add(threading.get_ident())


def collect():
    """The end of `rest()`."""
    me = threading.get_ident()
    if me in _resting:
        with _changed:
            _resting.discard(me)
            _collect_again()


def _collect_again():
    if _collects and not _inside and not _resting:
        gc.enable()


def _before():
    global _forking
    me, end = threading.get_ident(), time.monotonic() + PATIENCE
    with _changed:
        if me not in _inside:  # else others may be waiting for this thread
            _changed.wait_for(lambda: _forking is None, PATIENCE)
            _forking = me
            _changed.wait_for(lambda: not _inside, PATIENCE)
    while _is_importing(me) and time.monotonic() < end:
        time.sleep(0.001)


def _module_locks() -> dict:
    """Locks of modules that are being imported, by name, as weak references."""
    return getattr(sys.modules["importlib._bootstrap"], "_module_locks", {})


def _is_importing(me: int) -> bool:
    """Whether another thread is importing a module of this package."""
    for name, reference in list(_module_locks().items()):
        if name.partition(".")[0] == "tandem" and getattr(reference(), "owner", None) not in (None, me):
            return True
    return False


def _forget_imports(me: int):
    """In a child: modules of this package whose import another thread had begun are imported again when they are asked for."""
    held = _module_locks()
    for name, reference in list(held.items()):
        if name.partition(".")[0] == "tandem" and getattr(reference(), "owner", None) != me:
            held.pop(name, None)
            if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
                del sys.modules[name]


def _in_parent():
    global _forking
    with _changed:
        if _forking == threading.get_ident():
            _forking = None
            _changed.notify_all()


def _in_child():
    global _changed, _forking
    _changed, _forking = threading.Condition(threading.Lock()), None
    me = threading.get_ident()
    was_busy, depth = bool(_inside or _resting), _inside.get(me)
    _inside.clear()
    _resting.intersection_update((me,))
    if depth:
        _inside[me] = depth
    elif was_busy:
        _collect_again()
    for made in _locks:
        made._at_fork_reinit()
    _forget_imports(me)


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
