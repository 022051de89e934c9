"""Collectives that run in the background, and handles to wait for them.

A group has a thread for its collectives, which runs them in the order in which they were called, and one for each rank that is
sent to or received from. A call that is not asynchronous goes the same way while others are under way, so that the order stays.
"""

from __future__ import annotations

import queue
import threading

from tandem import _runtime
from tandem.distributed.group import ProcessGroup, Rank, enter, this_rank


class Work:
    """A collective under way."""

    def __init__(self, result=None):
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._result = result

    def wait(self, timeout=None) -> bool:
        """Until it is done; raises what it failed with. False if that takes longer than `timeout` seconds."""
        seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else timeout
        if not self._done.wait(seconds):
            return False
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        return self._done.is_set()

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self):
        """The tensors that it wrote."""
        self.wait()
        return self._result

    def _run(self, call):
        try:
            call()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()


class Queue:
    """A thread that runs calls one after the other, as this rank."""

    def __init__(self, rank: Rank):
        self._calls: queue.SimpleQueue = queue.SimpleQueue()
        self._under_way = 0
        self._lock = threading.Lock()  # guards _under_way
        threading.Thread(target=self._serve, args=(rank,), daemon=True, name="tandem collectives").start()

    def put(self, call, result=None) -> Work:
        work = Work(result)
        with self._lock:
            self._under_way += 1
        self._calls.put((work, call))
        return work

    @property
    def is_idle(self) -> bool:
        return self._under_way == 0

    def _serve(self, rank: Rank):
        enter(rank)
        while True:
            work, call = self._calls.get()
            work._run(call)
            with self._lock:
                self._under_way -= 1


def run(group: ProcessGroup, lane, call, asynchronous: bool, result=None) -> Work | None:
    """Runs a call of a collective in its lane: "collectives", or a direction and a rank."""
    if _runtime.capturing():  # part of the program, which runs as a whole
        call()
        return _done(result) if asynchronous else None
    waiting = group.queues.get(lane)
    if not asynchronous and (waiting is None or waiting.is_idle):
        call()
        return None
    if waiting is None:
        waiting = group.queues[lane] = Queue(this_rank("collective"))
    work = waiting.put(call, result)
    if asynchronous:
        return work
    work.wait()
    return None


def _done(result) -> Work:
    work = Work(result)
    work._done.set()
    return work
