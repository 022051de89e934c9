"""Calls between tasks, and from the controller: connections, and a server for an object. peers.py makes the calls.

Note [Calls]
A connection carries one call at a time: request, answer. Who calls several at once has several connections, which a Peer keeps for
the next ones. So the thread that serves a connection does what is asked itself, and nobody hands work over. A connection that
breaks means that the other side is gone, which for processes of one host is known at once. A call may have been done or not when
its connection breaks; all calls may be made again (Note [Once] in task.py).

Whoever connects must know the cluster's key; on one host the socket lies in a folder that only its owner can open.

Note [Near sockets]
A server on a port of the loopback interface can be reached from this host alone, and a socket that never leaves the host is quicker
and carries shared memory. So such a server listens at a name of the system's too, which says the port; who connects tries that one
first, and takes it only from a process of the same user. Names and loopback ports are those of one network namespace, both.

Note [Names of sockets]
A task that is started again listens at the name of the one before, in threads of one process while that one is still ending. A name
belongs to the server that listened at it last, which alone removes it, and before its connections break: who sees one break may
start a successor. It comes by a rename, when the server listens, so that there is no moment at which a name refuses.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import os
import socket
import struct
import sys
import threading

from tandem.distributed.cluster.errors import described
from tandem.distributed.cluster.wire import Closed, Connection

_NONCE = 16


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


def _near_name(family, place) -> str | None:
    """See Note [Near sockets]."""
    if family != socket.AF_INET or place[0] not in ("localhost", "127.0.0.1") or not sys.platform.startswith("linux"):
        return None
    return f"\0tandem-task-{place[1]}"


def _connect_near(family, place) -> socket.socket | None:
    name = _near_name(family, place)
    if name is None:
        return None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(name)
        _, user, _ = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user == os.geteuid():
            return sock
    except OSError:
        pass
    sock.close()
    return None


def connect(address: str, key: bytes = b"", timeout: float = 30.0) -> Connection:
    """A connection to a server. Raises Closed if there is none."""
    family, place = _parse(address)
    near = _connect_near(family, place)
    sock = near or socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        if near is None:
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


class _Names:
    """See Note [Names of sockets]."""

    def __init__(self):
        self._owners: dict[str, Server] = {}
        self._lock = threading.Lock()  # guards _owners, and names in the file system

    def listen(self, sock: socket.socket, place: str, server: Server):
        new = place + "~"
        with self._lock:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)  # of a task that was killed
            sock.bind(new)
            sock.listen(128)
            os.rename(new, place)
            self._owners[place] = server

    def remove(self, place: str, server: Server):
        with self._lock:
            if self._owners.get(place) is server:
                del self._owners[place]
                with contextlib.suppress(OSError):
                    os.unlink(place)


_names = _Names()


class Server:
    """Answers calls: target.calls maps their names to functions of (arguments, tensors) that give (value, tensors). Those of
    target.notices are told and not answered."""

    def __init__(self, target, address: str, key: bytes = b""):
        self.target, self.key = target, key
        family, place = _parse(address)
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        if family == socket.AF_INET:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(place)
            self._socket.listen(128)
        else:
            _names.listen(self._socket, place, self)
        self._sockets = [self._socket]
        if family == socket.AF_INET:
            host, port = place[0], place[1] or self._socket.getsockname()[1]
            address = f"tcp:{host}:{port}"
            near = _near_name(family, (host, port))
            if near is not None:
                self._listen_near(near)
        self.address = address
        self._connections: set[Connection] = set()
        self._lock = threading.Lock()  # guards _connections, _closed
        self._closed = False
        for listening in self._sockets:
            name = f"tandem server {address}"
            threading.Thread(target=self._accept, args=(listening,), daemon=True, name=name).start()

    def _listen_near(self, name: str):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.bind(name)
            made.listen(128)
        except OSError:  # somebody has the name: there is the port
            made.close()
            return
        self._sockets.append(made)

    def _accept(self, listening: socket.socket):
        while True:
            try:
                sock, _ = listening.accept()
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
            if self._closed:
                return
            self._closed = True
            connections = list(self._connections)
        family, place = _parse(self.address)
        if family == socket.AF_UNIX:
            _names.remove(place, self)
        for listening in reversed(self._sockets):  # the port last: a successor that has it finds the near name free
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        for connection in connections:
            connection.close()
