"""Calls between tasks, and from the controller: connections, and a server for an object. peers.py makes the calls.

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
import socket
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
