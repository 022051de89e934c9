"""Calls between tasks, and from the controller: a server for an object, and peers to call.

Note [Calls]
A connection carries one call at a time: request, answer. Who calls several at once has several connections, which a Peer keeps for
the next ones. So the thread that serves a connection does what is asked itself, and nobody hands work over. A connection that
breaks means that the other side is gone, which for processes of one host is known at once. A call may have been done or not when
its connection breaks; all calls may be made again (Note [Once] in task.py).

Whoever connects must know the cluster's key; on one host the socket lies in a folder that only its owner can open.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import os
import select
import socket
import threading
import time

from tandem.distributed.cluster.errors import described, restored
from tandem.distributed.cluster.wire import Closed, Connection
from tandem.errors import DeadlineError, TaskError

_NONCE = 16
_GRACE = 10.0  # seconds that tasks have to end a step that has failed elsewhere


@functools.cache
def boot() -> str:
    """What tells this host from others."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _parse(address: str) -> tuple:
    """Family and place of a socket. An address may have a second one, for who is on the same host: "tcp:... unix:... host"."""
    far, *near = address.split(" ")
    if near and near[1] == boot() and os.path.exists(near[0].removeprefix("unix:")):
        far = near[0]
    kind, _, rest = far.partition(":")
    if kind == "unix":
        return socket.AF_UNIX, rest
    host, _, port = rest.rpartition(":")
    return socket.AF_INET, (host, int(port))


def connect(address: str, key: bytes = b"", timeout: float = 30.0) -> Connection:
    """A connection to a server. Raises Closed if there is none."""
    family, place = _parse(address)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(place)
        nonce = b""
        while len(nonce) < _NONCE:
            part = sock.recv(_NONCE - len(nonce))
            if not part:
                raise Closed("refused")
            nonce += part
        sock.sendall(hmac.digest(key, nonce, "sha256"))
        sock.settimeout(None)
    except OSError as error:
        sock.close()
        raise Closed(str(error)) from None
    return Connection(sock)


class Server:
    """Answers calls: target.calls maps their names to functions of (arguments, tensors) that give (value, tensors). Those of
    target.notices are told and not answered."""

    def __init__(self, target, address: str, key: bytes = b""):
        self.target, self.key = target, key
        family, place = _parse(address)
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        if family == socket.AF_INET:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_UNIX:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(place)  # of a task that was killed
        self._socket.bind(place)
        self._socket.listen(128)
        if family == socket.AF_INET:
            host, port = place
            address = f"tcp:{host}:{port or self._socket.getsockname()[1]}"
        self.address = address
        self._connections: set[Connection] = set()
        self._lock = threading.Lock()  # guards _connections, _closed
        self._closed = False
        threading.Thread(target=self._accept, daemon=True, name=f"tandem server {address}").start()

    def _accept(self):
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._greet, args=(sock,), daemon=True, name="tandem connection").start()

    def _greet(self, sock: socket.socket):
        nonce = os.urandom(_NONCE)
        try:
            sock.settimeout(30)
            sock.sendall(nonce)
            answer = b""
            while len(answer) < hashlib.sha256().digest_size:
                part = sock.recv(hashlib.sha256().digest_size - len(answer))
                if not part:
                    raise Closed("left")
                answer += part
            if not hmac.compare_digest(answer, hmac.digest(self.key, nonce, "sha256")):
                raise Closed("does not know the key")
            sock.settimeout(None)
        except OSError:
            sock.close()
            return
        connection = Connection(sock)
        with self._lock:
            if self._closed:
                connection.close()
                return
            self._connections.add(connection)
        try:
            self._serve(connection)
        finally:
            with self._lock:
                self._connections.discard(connection)
            self.target.left(connection)
            connection.close()

    def _serve(self, connection: Connection):
        calls, notices = self.target.calls, self.target.notices
        while True:
            try:
                (name, *arguments), tensors = connection.receive()
            except (OSError, ValueError, KeyError, TypeError):
                return
            if name in notices:
                with contextlib.suppress(Exception):  # what is wrong with a message is seen by who waits for it
                    notices[name](arguments, tensors)
                try:
                    connection.give_back()
                except Closed:
                    return
                continue
            try:
                value, results = calls[name](connection, arguments, tensors)
                answer = [True, value], results
            except BaseException as error:
                answer = [False, described(error)], ()
            try:
                connection.send(*answer)
            except Closed:
                return
            except Exception as error:
                connection.send([False, described(error)])

    def close(self):
        with self._lock:
            self._closed = True
            connections = list(self._connections)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in connections:
            connection.close()
        family, place = _parse(self.address)
        if family == socket.AF_UNIX:
            with contextlib.suppress(OSError):
                os.unlink(place)


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
