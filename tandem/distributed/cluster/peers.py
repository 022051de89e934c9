"""Tasks to call: one by one, or several at once. See Note [Calls] in rpc.py."""

from __future__ import annotations

import select
import threading
import time

from tandem.distributed.cluster.errors import restored
from tandem.distributed.cluster.rpc import connect
from tandem.distributed.cluster.wire import Closed, Connection
from tandem.errors import DeadlineError, TaskError

_GRACE = 10.0  # seconds that tasks have to end a step that has failed elsewhere


class Peer:
    """A task to call."""

    def __init__(self, name: str, address: str, key: bytes = b""):
        self.name, self.address, self.key = name, address, key
        self._idle: list[Connection] = []
        self._lock = threading.Lock()  # guards _idle
        self._notices: Connection | None = None
        self._noticing = threading.Lock()  # one message after the other; guards _notices

    def begin(self, name: str, *arguments, tensors=()) -> Call:
        """Makes a call, whose answer is yet to come."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None:
            try:
                connection.send([name, *arguments], tensors)
                return Call(self, connection)
            except Closed:  # it may have been restarted since
                connection.close()
        try:
            connection = connect(self.address, self.key)
            connection.send([name, *arguments], tensors)
        except Closed as error:
            raise self.lost(error) from None
        return Call(self, connection)

    def call(self, name: str, *arguments, tensors=(), timeout: float | None = None) -> tuple:
        """(value, tensors) that a call gives. Raises what it raises there; TaskError if the task is gone."""
        made = self.begin(name, *arguments, tensors=tensors)
        if timeout is not None and not made.ready(timeout):
            made.forget()
            raise DeadlineError(name, f"{self.name} did not answer within {timeout:g} s")
        return made.result()

    def notify(self, name: str, *arguments, tensors=()):
        """Tells the task something, which it does not answer."""
        with self._noticing:
            for last in (False, True):
                try:
                    if self._notices is None:
                        self._notices = connect(self.address, self.key, _GRACE)
                    self._notices.drain()
                    self._notices.send([name, *arguments], tensors)
                    return
                except Closed as error:
                    if self._notices is not None:
                        self._notices.close()
                        self._notices = None
                    if last:
                        raise self.lost(error) from None

    def lost(self, error) -> TaskError:
        made = TaskError(None, f"{self.name} is gone: {error}", fix="start it again: cluster.restart(task)")
        made.task = self.name
        return made

    def is_alive(self, timeout: float = 5.0) -> bool:
        try:
            self.call("ping", timeout=timeout)
            return True
        except (TaskError, DeadlineError):
            return False

    @property
    def bytes_sent(self) -> int:
        """What calls have sent so far, but for those under way and for shared memory."""
        with self._lock:
            return sum(connection.sent for connection in self._idle)

    def put_back(self, connection: Connection):
        with self._lock:
            self._idle.append(connection)

    def close(self):
        with self._lock:
            idle, self._idle = self._idle, []
        with self._noticing:
            if self._notices is not None:
                idle.append(self._notices)
                self._notices = None
        for connection in idle:
            connection.close()


class Call:
    """A call under way."""

    def __init__(self, peer: Peer, connection: Connection):
        self.peer, self.connection = peer, connection

    def ready(self, timeout: float) -> bool:
        return bool(select.select([self.connection.socket], [], [], timeout)[0])

    def result(self) -> tuple:
        try:
            (well, value), tensors = self.connection.receive()
        except Closed as error:
            self.connection.close()
            raise self.peer.lost(error) from None
        self.peer.put_back(self.connection)
        if not well:
            raise restored(value)
        return value, tensors

    def forget(self):
        """Nobody waits for the answer any more."""
        self.connection.close()


def gather(calls: list[Call], failed=None, deadline: float | None = None, again=None) -> list[tuple]:
    """Answers of all calls. At the first that fails, `failed(error)` is told, once; when all have answered or are gone, its error
    is raised. DeadlineError when the time is over, after `failed` was told. again(k): makes call k again, which had no answer."""
    answers: list = [None] * len(calls)
    waiting = {call.connection.socket.fileno(): k for k, call in enumerate(calls)}
    error: BaseException | None = None
    if len(calls) == 1 and deadline is None:  # nothing to choose from
        try:
            answer = calls[0].result()
            return [again(0).result()] if again is not None and answer[0] is None else [answer]
        except BaseException as first:
            if failed is not None:
                failed(first)
            raise
    late = None  # when nobody is waited for any more
    poll = select.poll()
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    while waiting:
        end = deadline if late is None else late
        left = None if end is None else max(0.0, end - time.monotonic()) * 1000
        try:
            found = poll.poll(left)
        except BaseException as stopped:  # an interrupt
            if failed is not None:
                failed(stopped)
            raise
        if not found and late is None:
            names = ", ".join(calls[k].peer.name for k in waiting.values())
            error = DeadlineError("run", f"not done within the time given; there was no answer of {names}")
            late = time.monotonic() + _GRACE
            if failed is not None:
                failed(error)
        elif not found:
            for k in waiting.values():
                calls[k].forget()
            break
        for fd, _ in found:
            poll.unregister(fd)
            k = waiting.pop(fd)
            try:
                answers[k] = calls[k].result()
                if again is not None and answers[k][0] is None:
                    calls[k] = again(k)
                    waiting[calls[k].connection.socket.fileno()] = k
                    poll.register(calls[k].connection.socket.fileno(), select.POLLIN)
            except BaseException as raised:
                if error is None:
                    error = raised
                    late = time.monotonic() + _GRACE
                    if failed is not None:
                        failed(raised)
    if error is not None:
        raise error
    return answers
