"""Processes that compile the kernels of a large program while it is still being lowered.

Note [Compile workers]
LLVM takes a third of the time that a new program takes, and llvmlite lets one thread of a process use it at a time. So a program
with many parts starts a process beside it (llvm/assemble.py), which gets the text of every kernel as soon as that is known
and gives back object code. At the end this process does what is left in the queue itself. Whatever goes wrong with a worker
(it cannot be started, is killed, fails) only means that kernels are compiled here. The processes end with the program's
compilation.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque

from tandem.codegen.cache import ready
from tandem.codegen.compile import is_known, object_of, text_of
from tandem.llvm import assemble
from tandem.switches import COMPILE_WORKERS

_here = threading.local()  # ahead: the Ahead that kernels made in this thread go to


def note(kernel) -> None:
    """Called for every kernel that becomes a step: compiles it ahead, where that goes on."""
    ahead = getattr(_here, "ahead", None)
    if ahead is not None:
        ahead.add(kernel)


@contextlib.contextmanager
def compiling_ahead(worthwhile: bool):
    """While inside, kernels of steps are compiled beside; afterwards all of them are."""
    count = min(COMPILE_WORKERS.value, len(os.sched_getaffinity(0)) - 1) if worthwhile else 0
    if count <= 0 or getattr(_here, "ahead", None) is not None:
        yield
        return
    ahead = _here.ahead = Ahead(count)
    try:
        yield
        ahead.finish()
    finally:
        _here.ahead = None
        ahead.close()


class Ahead:
    """A queue of kernels and the processes that work on it."""

    def __init__(self, count: int):
        self._seen: set[str] = set()
        self._waiting: deque = deque()  # (key, text)
        self._changed = threading.Condition()  # guards _waiting, _closed and _busy
        self._closed = False
        self._busy = 0
        self._processes = [p for p in (_start() for _ in range(count)) if p is not None]
        self._threads = [threading.Thread(target=self._feed, args=(p,), daemon=True) for p in self._processes]
        for thread in self._threads:
            thread.start()

    def add(self, kernel) -> None:
        if not self._processes or kernel.key in self._seen:
            return
        self._seen.add(kernel.key)
        if is_known(kernel):
            return
        text = text_of(kernel)
        with self._changed:
            self._waiting.append((kernel.key, text))
            self._changed.notify()

    def finish(self) -> None:
        """Compiles here what no worker has begun, and waits for the rest."""
        if not any(p.poll() is None for p in self._processes):
            return  # whatever is left is compiled when it is loaded
        while True:
            with self._changed:
                if len(self._waiting) < _worth_beginning():
                    self._changed.wait_for(lambda: not (self._waiting or self._busy) or not self._alive(), 60)
                    return
                key, text = self._waiting.pop()
            ready[key] = object_of(text)

    def _alive(self) -> bool:
        return any(t.is_alive() for t in self._threads)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        for process in self._processes:
            with contextlib.suppress(OSError):
                process.kill()
        for process in self._processes:
            process.wait()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()

    def _feed(self, process) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                key, text = self._waiting.popleft()
                self._busy += 1
            made = _ask(process, text.encode())
            with self._changed:
                self._busy -= 1
                if made:
                    ready[key] = made
                self._changed.notify_all()
            if made is None:
                return


def _worth_beginning() -> int:
    """How many kernels must wait for this process to take one; importing llvmlite takes as long as a few of them."""
    return 1 if "llvmlite" in sys.modules else 8


def _start():
    import subprocess  # when needed: it takes longer to import than all of our own modules here
    from importlib.util import find_spec

    spec = find_spec("llvmlite")
    if spec is None or not spec.submodule_search_locations or not sys.executable:
        return None
    folder = os.path.dirname(next(iter(spec.submodule_search_locations)))
    command = [sys.executable, "-I", "-S", assemble.__file__, folder, str(int(assemble.keeps_lsr()))]
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None


def _ask(process, text: bytes) -> bytes | None:
    """Object code, nothing if the worker could not make it, None if the worker is gone."""
    try:
        process.stdin.write(len(text).to_bytes(4, "little") + text)
        process.stdin.flush()
        header = process.stdout.read(4)
        if len(header) < 4:
            return None
        size = int.from_bytes(header, "little")
        made = process.stdout.read(size)
        return made if len(made) == size else None
    except (OSError, ValueError):
        return None
