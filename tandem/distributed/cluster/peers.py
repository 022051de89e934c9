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
                connection.drain()
                connection.send([name, *arguments], tensors)
                return Call(self, connection)
            except Closed:  # it may have been restarted since
                self.broken(connection)
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
        """Whether the task answers. One connection that breaks says little: it may be of a server that was just replaced. The
        second call makes a new one."""
        for _ in range(2):
            try:
                self.call("ping", timeout=timeout)
                return True
            except TaskError:
                continue
            except DeadlineError:
                return False
        return False

    @property
    def bytes_sent(self) -> int:
        """What calls have sent so far, but for those under way and for shared memory."""
        with self._lock:
            return sum(connection.sent for connection in self._idle)

    def put_back(self, connection: Connection):
        with self._lock:
            self._idle.append(connection)

    def broken(self, connection: Connection):
        """Of a server that has ended, as are those that lie idle: a call by one of them would fail though a successor is there."""
        with self._lock:
            idle, self._idle = self._idle, []
        for one in (connection, *idle):
            one.close()

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
        return self.connection.has_come(timeout)

    def result(self) -> tuple:
        try:
            (well, value), tensors = self.connection.receive()
        except Closed as error:
            self.peer.broken(self.connection)
            raise self.peer.lost(error) from None
        self.peer.put_back(self.connection)
        if not well:
            raise restored(value)
        return value, tensors

    def forget(self):
        """Nobody waits for the answer any more."""
        self.connection.close()


def gather(calls: list[Call], failed=None, deadline: float | None = None, again=None) -> list[tuple]:
    """Answers of all calls, as Gathering has them."""
    if len(calls) == 1 and deadline is None:  # nothing to choose from
        try:
            answer = calls[0].result()
            return [again(0).result()] if again is not None and answer[0] is None else [answer]
        except BaseException as first:
            if failed is not None:
                failed(first)
            raise
    return Gathering(calls, failed, again).finish(deadline)


class Gathering:
    """Answers of several calls. At the first that fails, `failed(error)` is told, once; when all have answered or are gone, its
    error is raised. again(k): makes call k again, which had no answer. One thread at a time, which holds `lock`."""

    def __init__(self, calls: list[Call], failed=None, again=None):
        self.calls, self.failed, self.again = calls, failed, again
        self.answers: list = [None] * len(calls)
        self.error: BaseException | None = None
        self.lock = threading.Lock()
        self._late: float | None = None  # when nobody is waited for any more
        self._waiting: dict[int, int] = {}
        self._poll = select.poll()
        for k in range(len(calls)):
            self._await(k)

    def _await(self, k: int):
        fd = self.calls[k].connection.socket.fileno()
        self._waiting[fd] = k
        self._poll.register(fd, select.POLLIN)

    def fail(self, error: BaseException):
        if self.error is None:
            self.error = error
            self._late = time.monotonic() + _GRACE
            if self.failed is not None:
                self.failed(error)

    def advance(self, timeout: float | None) -> bool:
        """Takes the answers that have come, after waiting for one for so many seconds. Whether there was one."""
        try:
            found = self._poll.poll(None if timeout is None else timeout * 1000) if self._waiting else ()
        except BaseException as stopped:  # an interrupt
            if self.failed is not None:
                self.failed(stopped)
            raise
        for fd, _ in found:
            self._poll.unregister(fd)
            k = self._waiting.pop(fd)
            try:
                self.answers[k] = self.calls[k].result()
                if self.again is not None and self.answers[k][0] is None:
                    self.calls[k] = self.again(k)
                    self._await(k)
            except BaseException as raised:
                self.fail(raised)
        return bool(found)

    def finish(self, deadline: float | None = None) -> list[tuple]:
        """All answers. DeadlineError when the time is over, after `failed` was told."""
        while self._waiting:
            end = deadline if self._late is None else self._late
            if self.advance(None if end is None else max(0.0, end - time.monotonic())):
                continue
            if self._late is not None:
                for k in self._waiting.values():
                    self.calls[k].forget()
                break
            names = ", ".join(self.calls[k].peer.name for k in self._waiting.values())
            self.fail(DeadlineError("run", f"not done within the time given; there was no answer of {names}"))
        if self.error is not None:
            raise self.error
        return self.answers


class Lookout:
    """Takes answers of steps whose callers run a part of them themselves, and so cannot wait for the others' (Note [Own part] in
    session.py): looks at them again and again, and ends when there has been nothing to look at for a while."""

    _PAUSE, _IDLE = 0.02, 50  # seconds between two looks; looks in vain before the thread ends

    def __init__(self):
        self._looked_at: set[Gathering] = set()
        self._lock = threading.Lock()  # guards both
        self._thread: threading.Thread | None = None

    def begin(self, gathering: Gathering):
        with self._lock:
            self._looked_at.add(gathering)
            if self._thread is None or not self._thread.is_alive():  # a fork has no threads
                self._thread = threading.Thread(target=self._look, daemon=True, name="tandem lookout")
                self._thread.start()

    def end(self, gathering: Gathering):
        with self._lock:
            self._looked_at.discard(gathering)
        with gathering.lock:  # it is not being looked at any more
            pass

    def _look(self):
        idle = 0
        while True:
            time.sleep(self._PAUSE)
            with self._lock:
                found = list(self._looked_at)
                idle = 0 if found else idle + 1
                if idle > self._IDLE:
                    self._thread = None
                    return
            for gathering in found:
                with gathering.lock:
                    if gathering in self._looked_at:
                        gathering.advance(0)


lookout = Lookout()
