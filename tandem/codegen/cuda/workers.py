"""Processes that compile kernels for a device while their program is still being traced and lowered.

Note [Device compile workers]
Threads that use NVRTC wait for each other: there is a lock inside it, and a process gets no more than three kernels done in the
time that one takes alone. So a program of some size starts processes beside it (cuda/assemble.py), which get the source of every
kernel as soon as that is known and give back machine code. Only one is started, which opens NVRTC; the others are forked from it.

No thread of ours stands between: it would wait for Python's lock while the program is lowered, and its process for it. Whoever
brings a kernel also takes answers and hands out what waits, without waiting itself; as long as nobody waits for answers, a process
has a second kernel in its socket while it works on the first. When nothing is left to hand out, a process without work gets a copy
of what waits behind another's, and whichever is done first counts.

They start when the trace of a program tells that there will be kernels: with the fourth operator that is new, where no code for
devices had been kept on disk, and otherwise when the program is not found there. They end when nothing was asked of them for a
while, or with this process. Whatever goes wrong with one (it cannot be started, is killed, fails, does not answer) only means
that kernels are compiled here, which also tells what is wrong with a kernel.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Collection

from tandem.switches import COMPILE_WORKERS, cache_dir

FEW = 3  # operators or kernels that are not worth a process
LINGER = 2.0  # seconds that processes without work stay; a step may have several programs
LOOK = 0.5  # seconds after which somebody looks whether that is over
PATIENCE = 60.0  # seconds for a kernel; then something is wrong with the process

_lock = threading.Lock()  # guards all of these; nobody waits for a process while holding it
_parent: Parent | None = None
_workers: list[Worker] = []
_waiting: list[Job] = []
_used = 0.0  # when somebody last asked for something
_operators = 0  # that were traced since processes were last needed
_watching = False
_works = True  # until a process did not get as far as its first kernel
# Whether nothing that was compiled earlier can be there; asked before this process keeps anything.
_nothing_kept = not os.path.isdir(os.path.join(cache_dir() or "", "cuda"))


class Job:
    """A kernel to compile. Done when it has an image or is left to this process."""

    __slots__ = ("copies", "image", "left", "request")

    def __init__(self, request: bytes):
        self.request = request
        self.image: bytes | None = None
        self.left = False
        self.copies = 0  # processes that have it

    def done(self) -> bool:
        return self.left or self.image is not None


class Worker:
    """A process, what it was asked for in this order, and the bytes on the way to it and from it."""

    __slots__ = ("asked", "came", "line", "pid", "ready", "since", "unsent")

    def __init__(self, line: int):
        self.pid = 0  # not known yet
        self.line = line
        self.asked: deque[Job] = deque()
        self.unsent, self.came = bytearray(), bytearray()
        self.ready = False
        self.since = time.monotonic()  # when it began with what it works on

    def send(self, job: Job) -> None:
        if not self.asked:
            self.since = time.monotonic()
        self.asked.append(job)
        job.copies += 1
        self.unsent += job.request
        self.flush()

    def flush(self) -> None:
        with contextlib.suppress(OSError):  # full for now; or gone, which reading tells
            while self.unsent:
                del self.unsent[: os.write(self.line, self.unsent)]

    def receive(self) -> bool:
        """Takes what came; whether all is well."""
        try:
            while part := os.read(self.line, 1 << 16):
                self.came += part
            return False  # it has ended
        except BlockingIOError:
            pass
        except OSError:
            return False
        while len(self.came) >= 4:
            size = int.from_bytes(self.came[:4], "little")
            if size > 1 << 30 or not (self.ready or size == 4) or (self.ready and not self.asked):
                return False  # not what it should say
            if len(self.came) < 4 + size:
                break
            made = bytes(self.came[4 : 4 + size])
            del self.came[: 4 + size]
            self.since = time.monotonic()
            if self.ready:
                self._answered(self.asked.popleft(), made)
            else:
                self.pid, self.ready = int.from_bytes(made, "little"), True
        return not self.asked or time.monotonic() - self.since < PATIENCE

    def _answered(self, job: Job, made: bytes) -> None:
        job.copies -= 1
        if made.startswith(b"\x7fELF"):
            job.image = job.image or made
        else:
            job.left = True

    def end(self) -> None:
        """It ends when it next reads or writes, or with the process that it was forked from."""
        os.close(self.line)


class Parent:
    """The process that workers are forked from, and the socket through which it gets theirs."""

    __slots__ = ("pid", "socket")

    def __init__(self, command: list[str]):
        import _socket

        self.socket, its_socket = _socket.socketpair()  # none of these is inherited by other processes
        try:
            self.pid = os.posix_spawn(
                command[0], command, os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, its_socket.fileno(), 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
            )  # fmt: skip
        except OSError:
            self.socket.close()
            raise
        finally:
            its_socket.close()

    def fork(self) -> Worker:
        import _socket

        from tandem.codegen.cuda import assemble

        # One number per process, not two as for pipes: beyond 64 in all, the system takes 20 ms to make room for more.
        ours, its = _socket.socketpair()
        try:
            assemble.send_line(self.socket, its.fileno())
        except OSError:
            ours.close()
            raise
        finally:
            its.close()
        ours.setblocking(False)
        return Worker(ours.detach())

    def end(self) -> None:
        """And all that were forked from it, whatever they do."""
        self.socket.close()
        with contextlib.suppress(OSError):
            if os.waitpid(self.pid, os.WNOHANG) == (0, 0):  # still there, and still ours
                os.kill(self.pid, 9)
                os.waitpid(self.pid, 0)


# -- when processes start and end


def begin_ahead(device: int) -> None:
    """An operator that is new is traced for a program on this device (of cuda:device)."""
    global _operators
    _operators += 1
    if _nothing_kept and _operators > FEW:
        with _lock:
            _start(len(_workers) + 1, device)


def expect(operators: int, device: int) -> None:
    """A program of this many different operators is about to be lowered."""
    global _operators
    _operators = 0
    # Where code is kept on disk, most kernels may be there; offer() has more processes start as they turn out not to be.
    with _lock:
        _start(min(operators - FEW, 1000 if _nothing_kept else 2), device)


def _limit() -> int:
    processors = len(os.sched_getaffinity(0))
    return min(5 * COMPILE_WORKERS.value, processors - 1)


def _start(count: int, device: int) -> None:
    """Starts processes until there are this many, or as many as there may be."""
    global _parent, _used, _watching, _works
    _used = time.monotonic()
    count = min(count, _limit())
    if len(_workers) >= count or not (_works and sys.executable) or getattr(sys, "frozen", False):
        return
    from tandem._runtime import cuda_properties
    from tandem.codegen.cuda import assemble  # when needed: it imports ctypes
    from tandem.codegen.cuda.libraries import candidates

    _, major, minor, *_ = cuda_properties(device)
    command = [sys.executable, "-I", "-S", assemble.__file__, str(10 * major + minor), *candidates("nvrtc")]
    try:
        if _parent is None:
            _parent = Parent(command)
        while len(_workers) < count:
            _workers.append(_parent.fork())
    except OSError:
        _works = False
    if not _watching:
        try:
            threading.Thread(target=_watch, name="tandem-nvrtc", daemon=True).start()
            _watching = True
        except RuntimeError:  # no more threads, or the interpreter is about to end
            _works = False
            _end()


def _watch() -> None:
    """Ends the processes when nobody has needed them for a while."""
    global _watching
    while True:
        time.sleep(LOOK)
        with _lock:
            _exchange()
            idle = time.monotonic() - _used
            if idle > (PATIENCE if _waiting or any(w.asked for w in _workers) else LINGER):
                _end()
            if not _workers:
                _end()
                _watching = False
                return


def _end() -> None:
    global _parent
    while _workers:
        _lose(_workers[-1])
    if _parent is not None:
        _parent.end()
        _parent = None


def _lose(worker: Worker) -> None:
    """A process that is of no use any more: what it had begun with is left to us, the rest to the others."""
    _workers.remove(worker)
    worker.end()
    for position, job in enumerate(worker.asked):
        job.copies -= 1
        if job.done() or job.copies:
            continue
        if position == 0 and worker.ready:
            job.left = True
        else:
            _waiting.append(job)
    if not _workers:
        for job in _waiting:
            job.left = True
        _waiting.clear()


def abandon() -> None:
    """The program that kernels were compiled for will not be."""
    with _lock:
        _end()


def _forget() -> None:
    """In a child of this process, which has neither the processes nor what another thread was about to do."""
    global _lock, _parent, _watching
    _lock = threading.Lock()
    for worker in _workers:
        worker.end()  # of this copy of its socket: else it would not learn of the other's end
    _workers.clear()
    if _parent is not None:
        _parent.socket.close()
        _parent = None
    _waiting.clear()
    _watching = False


os.register_at_fork(after_in_child=_forget)


# -- kernels


def offer(source: str, capability: int, name: str, exact: bool, device: int) -> Job | None:
    """Has a kernel compiled beside; None if nobody is there for it."""
    global _used
    if not _workers or not COMPILE_WORKERS:
        return None
    from tandem.codegen.cuda import assemble

    with _lock:
        if not _workers:
            return None
        _used = time.monotonic()
        job = Job(assemble.request(source, capability, name, exact))
        _waiting.append(job)
        if all(w.asked for w in _workers):
            _start(len(_workers) + 1, device)
        _exchange()
    return job


def wait(jobs: Collection[Job], seconds: float) -> None:
    """Until one of these is done, or for this long at most."""
    global _used
    with _lock:
        _used = time.monotonic()
        _exchange(1)
        if any(job.done() for job in jobs):  # its answer was taken by now, and no other may come
            return
        watched = select.poll()
        for worker in _workers:
            watched.register(worker.line, select.POLLIN | (select.POLLOUT if worker.unsent else 0))
    watched.poll(1000 * seconds)
    with _lock:
        _exchange(1)


def take(jobs: Collection[Job], ready: bool) -> Job | None:
    """One of these that this process should compile while it waits for them; ready: whether it has NVRTC, which takes as long to
    open as a kernel or two."""
    with _lock:
        _exchange(1)
        mine = [job for job in _waiting if job in jobs]
        if len(mine) <= (1 if ready else 3) * len(_workers):
            return None
        job = _next(mine)
        _exchange()
        return job


def withdraw(jobs: list[Job]) -> None:
    """Nobody needs these any more."""
    with _lock:
        _waiting[:] = [job for job in _waiting if job not in jobs]


def _exchange(each: int = 2) -> None:
    """Takes answers and hands out what waits, this many kernels to a process. Never waits."""
    global _works
    for worker in list(_workers):
        worker.flush()
        if not worker.receive():
            _works = _works and worker.ready
            _lose(worker)
    # At once to those that can begin, then to those that still start, then one more to each.
    for worker in sorted(_workers, key=lambda w: (len(w.asked), not w.ready)):
        if len(worker.asked) < (each if worker.ready else 1):
            job = _next(_waiting) or (None if worker.asked else _behind_another(worker))
            if job is None:
                return
            worker.send(job)


def _next(jobs: list[Job]) -> Job | None:
    """The longest source, which most likely takes longest, first."""
    if not jobs:
        return None
    job = max(jobs, key=lambda job: len(job.request))
    _waiting.remove(job)
    return job


def _behind_another(idle: Worker) -> Job | None:
    """What another process has but cannot have begun with."""
    for worker in _workers:
        for job in list(worker.asked)[1 if worker.ready else 0 :]:
            if worker is not idle and idle.ready and not job.done() and job.copies == 1:
                return job
    return None
