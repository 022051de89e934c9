"""Collectives that run in the background, and handles to wait for them.

A group has a thread for its collectives, which runs them in the order in which they were called, and one for each rank that is
sent to or received from. A call that is not asynchronous goes the same way while others are under way, so that the order stays;
collectives of programs and of hooks wait for those before them (src/collectives/background.h).
Tensors on a device: such a thread has a stream of its own, which begins after what the caller's has when it calls; whoever waits
has its current stream wait.
"""

from __future__ import annotations

import queue
import threading

from tandem import _runtime, cuda
from tandem.distributed.group import ProcessGroup, Rank, enter, this_rank


class Work:
    """A collective under way."""

    def __init__(self, result=None):
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._result = result
        self._event: cuda.Event | None = None  # on a device, behind the collective

    def wait(self, timeout=None) -> bool:
        """Until it is done; raises what it failed with. False if that takes longer than `timeout` seconds."""
        seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else timeout
        if not self._done.wait(seconds):
            return False
        if self._error is not None:
            raise self._error
        if self._event is not None:
            self._event.wait()
        return True

    def is_completed(self) -> bool:
        return self._done.is_set() and (self._event is None or self._event.query())

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
    """A thread that runs calls one after the other, as this rank. communicator: of the group whose collectives they are, if they
    are, so that others come after them."""

    def __init__(self, rank: Rank, communicator=None):
        self._communicator = communicator
        self._calls: queue.SimpleQueue = queue.SimpleQueue()
        self._under_way = 0
        self._lock = threading.Lock()  # guards _under_way
        self._streams: dict[int, cuda.Stream] = {}  # by device
        self._thread = threading.Thread(target=self._serve, args=(rank,), daemon=True, name="tandem collectives")
        self._thread.start()

    def put(self, call, result=None, device: int | None = None) -> Work:
        """device: the CUDA device on which its tensors are, if they are on one."""
        work = Work(result)
        before = None
        if device is not None:
            before = cuda.current_stream(device).record_event(cuda.Event(device=device))
        with self._lock:
            self._under_way += 1
        if self._communicator is not None:
            self._communicator.queue_up()
        self._calls.put((work, call, before, device, _runtime.CallerSource()))
        return work

    def end(self, seconds: float):
        """Has the thread end, after what is left, and waits for it so long at most. Its rank has left the group."""
        self._calls.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)

    @property
    def is_idle(self) -> bool:
        return self._under_way == 0

    def _serve(self, rank: Rank):
        enter(rank)
        _runtime.serve_queue()
        last: list = []  # what is under way on devices: its tensors stay until it is done
        while (taken := self._calls.get()) is not None:
            work, call, before, device, source = taken
            last = [(w, c) for w, c in last if not w.is_completed()]
            source.enter()
            if device is None:
                work._run(call)
            else:
                work._run(lambda work=work, call=call, at=(before, device): self._run_on_device(work, call, *at))
                last.append((work, call))
            source.leave()
            if self._communicator is not None:
                self._communicator.queue_done()
            with self._lock:
                self._under_way -= 1
            del work, call, source, taken
        enter(None)  # while this thread may still have Python's lock, which freeing the rank's groups needs

    def _run_on_device(self, work: Work, call, before: cuda.Event, device: int):
        if device not in self._streams:
            self._streams[device] = cuda.Stream(device)
        stream = self._streams[device]
        stream.wait_event(before)
        with cuda.stream(stream):
            call()
        work._event = stream.record_event(cuda.Event(device=device))


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
        announced = group.communicator if lane == "collectives" else None
        waiting = group.queues[lane] = Queue(this_rank("collective"), announced)
    work = waiting.put(call, result, _device_of(result))
    if asynchronous:
        return work
    work.wait()
    return None


def _device_of(tensors) -> int | None:
    """The CUDA device of what a collective writes."""
    for t in tensors or ():
        if isinstance(t, _runtime.Tensor) and t.device.type == "cuda":
            return t.device.index
    return None


def _done(result) -> Work:
    work = Work(result)
    work._done.set()
    return work
