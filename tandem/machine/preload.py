"""When the compiler's library is loaded: beside other work, where it is likely to be needed, and otherwise not at all.

Most of the first compilation is loading it. A directory of kernels tells that compiling is behind us, most likely for good: then
the library is loaded when it is needed. Kernels that came with the package (prebuilt.py) tell that it will hardly be needed:
then it begins to load before a call is traced that nobody foresaw. With neither, it loads beside the rest of `import tandem`.

Note [Imports in threads]
Two threads that import modules of a package in different orders wait for each other; Python notices, and gives one of them a
module that is half imported. So a thread of our own imports only what imports nothing else of the package (tandem/llvm), and a
first call, in whichever thread, imports the rest in one order (connect.py).
"""

from __future__ import annotations

import contextlib
import os
from importlib.machinery import PathFinder

from tandem import _runtime
from tandem.switches import PREBUILT, cache_dir

_begun = False
watches_calls = False  # whether the first call that was not prebuilt is to load the compiler


def preload_compiler() -> None:
    """At import."""
    global watches_calls
    directory = cache_dir()
    if directory and os.path.isdir(os.path.join(directory, "kernels")):
        return
    path = prebuilt_path()
    if path and os.path.exists(path):
        watches_calls = True
    else:
        load_compiler()


def load_compiler() -> None:
    """Begins to load the library in a thread of its own, the first time."""
    global _begun, watches_calls
    if _begun:
        return
    _begun, watches_calls = True, False
    found = PathFinder.find_spec("llvmlite")
    for folder in (found and found.submodule_search_locations) or ():
        path = os.path.join(folder, "binding", "libllvmlite.so")
        if os.path.exists(path):
            _runtime.preload(path)


def begin_compiling() -> None:
    """As load_compiler(), for a process that will compile in a moment: LLVM also compiles something small, which has the system
    bring in most of the pages that the first kernel needs."""
    import threading

    if _begun:
        return
    load_compiler()
    thread = threading.Thread(target=_warm_up, name="tandem-llvm")
    with contextlib.suppress(RuntimeError):  # no more threads, or the interpreter is about to end
        thread.start()
        # A child must not get a lock that nobody in it will release.
        os.register_at_fork(before=lambda: thread.join() if thread is not threading.current_thread() else None)


def _warm_up() -> None:
    _runtime.finish_preload()  # Python would hold its lock while it waits for the library
    with contextlib.suppress(Exception):  # whatever it is, the first kernel meets it again and tells
        from tandem.llvm.assemble import warm_up

        warm_up()


def prebuilt_path() -> str | None:
    """Where the kernels that came with the package lie (prebuilt.py), for this processor."""
    level = _runtime.cpu_level()
    if not (PREBUILT and level):
        return None
    folder = os.path.dirname(_runtime.__file__) if PREBUILT.value == PREBUILT.default else PREBUILT.value
    return os.path.join(folder, f"prebuilt-{level}.bin")
