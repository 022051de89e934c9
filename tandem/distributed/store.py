"""A key-value service: how ranks find one another. Nothing of Tandem is imported here, so that it starts at once by itself.

The service runs in the launcher, or in a process of its own; never in a rank, so that no rank is special. Keys are texts, values
are JSON. It has an epoch, which a failure raises: whoever waits for a key then gets an error instead of waiting on.

    python store.py PORT     serves until the last client has gone
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import struct
import sys
import threading
import time


class StoreError(RuntimeError):
    """A key that did not come, or a service that is gone."""


class EpochError(StoreError):
    """A failure that was told to all while a key was waited for."""


class _State:
    """What the service knows."""

    def __init__(self):
        self.values: dict[str, object] = {}
        self.epoch = 0
        self.reason = ""
        self.clients = 0
        self.departed: set[str] = set()  # those who attended and ended as they should
        self.changed = threading.Condition()  # guards all of it

    def set(self, key: str, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def add(self, key: str, amount: int) -> int:
        with self.changed:
            self.values[key] = value = int(self.values.get(key, 0)) + amount
            self.changed.notify_all()
            return value

    def get(self, key: str, seconds: float, since: int | None = None):
        """The value, once it is there; since: the epoch that the client knows."""
        end = time.monotonic() + seconds
        with self.changed:
            epoch = self.epoch if since is None else since
            while key not in self.values:
                if self.epoch != epoch:
                    raise EpochError(self.reason)
                left = end - time.monotonic()
                if left <= 0 or not self.changed.wait(left):
                    have = ", ".join(sorted(self.values)) or "nothing"
                    raise StoreError(f"no {key!r} within {seconds:g} s; there is {have}")
            return self.values[key]

    def bump(self, reason: str) -> int:
        with self.changed:
            self.epoch += 1
            self.reason = reason
            self.changed.notify_all()
            return self.epoch

    def current_epoch(self) -> int:
        return self.epoch

    def depart(self, name: str):
        with self.changed:
            self.departed.add(name)

    def lost(self, name: str):
        """The connection of one who attended has ended."""
        if name not in self.departed:
            self.bump(f"{name} failed (its process has ended: it was killed or it crashed)")

    def keys(self) -> list[str]:
        with self.changed:
            return sorted(self.values)

    def delete(self, key: str) -> bool:
        with self.changed:
            return self.values.pop(key, None) is not None


_CALLS = ("set", "add", "get", "bump", "keys", "delete", "current_epoch", "depart", "attend")


def _send(connection: socket.socket, message):
    data = json.dumps(message).encode()
    connection.sendall(struct.pack("<I", len(data)) + data)


def _receive(connection: socket.socket):
    def exactly(n: int) -> bytes:
        data = b""
        while len(data) < n:
            part = connection.recv(n - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    (size,) = struct.unpack("<I", exactly(4))
    return json.loads(exactly(size))


def _keep_alive(connection: socket.socket):
    """A host that is gone without a word is known after some seconds."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 2), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3)):
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _Handler(socketserver.BaseRequestHandler):
    def handle(self):
        state: _State = self.server.state
        attends = None  # whose connection this is
        with state.changed:
            state.clients += 1
        try:
            while True:
                call, *arguments = _receive(self.request)
                try:
                    if call not in _CALLS:
                        raise StoreError(f"there is no call {call!r}")
                    if call == "attend":
                        (attends,) = arguments
                        _keep_alive(self.request)
                        _send(self.request, [True, None])
                    else:
                        _send(self.request, [True, getattr(state, call)(*arguments)])
                except (StoreError, TypeError, ValueError) as error:
                    _send(self.request, [False, str(error), isinstance(error, EpochError)])
        except (EOFError, OSError):
            pass
        finally:
            if attends is not None:
                state.lost(attends)
            with state.changed:
                state.clients -= 1
                state.changed.notify_all()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256


class Service:
    """The service, in a thread of this process."""

    def __init__(self, port: int = 0, host: str = "127.0.0.1"):
        self._server = _Server((host, port), _Handler)
        self._server.state = self.state = _State()
        self.address = f"{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), daemon=True, name="tandem key-value service"
        )
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class Store:
    """A client. Each thread has a connection of its own, so that one that waits holds up no other."""

    def __init__(self, address: str, timeout: float = 300.0, prefix: str = ""):
        self.address, self.timeout, self.prefix = address, timeout, prefix
        self._local = threading.local()
        self._attended: list[socket.socket] = []

    def within(self, prefix: str) -> Store:
        """The keys that begin with this prefix, without it."""
        made = Store(self.address, self.timeout, self.prefix + prefix)
        made._local, made._attended = self._local, self._attended
        return made

    def _connection(self) -> socket.socket:
        made = getattr(self._local, "connection", None)
        if made is None:
            made = self._local.connection = self._connect()
        return made

    def _connect(self) -> socket.socket:
        host, _, port = self.address.rpartition(":")
        end = time.monotonic() + self.timeout
        while True:
            try:
                made = socket.create_connection((host, int(port)), timeout=self.timeout)
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise StoreError(f"no key-value service at {self.address}: {error}") from None
                time.sleep(0.02)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.settimeout(None)
        return made

    def _call(self, *message):
        connection = self._connection()
        try:
            _send(connection, message)
            right, value, *epoch = _receive(connection)
        except (EOFError, OSError) as error:
            self._local.connection = None
            raise StoreError(
                f"the key-value service at {self.address} is gone ({error or type(error).__name__})"
            ) from None
        if not right:
            raise (EpochError if epoch and epoch[0] else StoreError)(value)
        return value

    def set(self, key: str, value):
        self._call("set", self.prefix + key, value)

    def get(self, key: str, timeout: float | None = None, since: int | None = None):
        """The value of a key, waiting until somebody has set it. since: an epoch; EpochError if there is a later one."""
        return self._call("get", self.prefix + key, self.timeout if timeout is None else timeout, since)

    def epoch(self) -> int:
        return self._call("current_epoch")

    def attend(self, name: str):
        """Has the service raise the epoch, with this name as the reason, when this process ends before it has departed."""
        connection = self._connect()
        _send(connection, ["attend", name])
        _receive(connection)
        self._attended.append(connection)

    def depart(self, name: str):
        self._call("depart", name)
        while self._attended:
            self._attended.pop().close()

    def add(self, key: str, amount: int) -> int:
        return self._call("add", self.prefix + key, amount)

    def delete_key(self, key: str) -> bool:
        return self._call("delete", self.prefix + key)

    def keys(self) -> list[str]:
        return [k.removeprefix(self.prefix) for k in self._call("keys") if k.startswith(self.prefix)]

    def bump(self, reason: str) -> int:
        """Raises the epoch: who waits for a key is told the reason."""
        return self._call("bump", reason)

    def close(self):
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None


def _serve(port: int, host: str):
    """Until clients have come and all have gone, or nobody came for a minute. The process that started this may end before."""
    try:
        service = Service(port, host)
    except OSError:  # another rank of this host has begun it
        return
    state, end, came = service.state, time.monotonic() + 60, False
    with state.changed:
        while state.clients or (not came and time.monotonic() < end):
            came = came or state.clients > 0
            state.changed.wait(1)
            if came and not state.clients:
                state.changed.wait(2)
    service.close()


def start_process(port: int, host: str = "0.0.0.0"):
    """The service in a process of its own, which outlives this one as long as others need it."""
    import subprocess

    subprocess.Popen(
        [sys.executable, "-S", "-E", os.path.abspath(__file__), str(port), host],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2])
