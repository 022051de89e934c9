"""A key-value service: how ranks find one another. Nothing of Tandem is imported here, so that it starts at once by itself.

The service runs in the launcher, or in a process of its own; never in a rank, so that no rank is special. Keys are texts, values
are JSON. It has an epoch, which a failure raises: whoever waits for a key then gets an error instead of waiting on.

    python store.py PORT HOST     serves until the last client has gone

Note [One program after the other]
Where ranks are started by others (mpirun, srun), rank 0 starts the service in a process of its own, at a port that the next program
has as well, and that program may begin before the service of the last one has ended. What the clients of a program have told goes
with the last of them, and the service that is there goes on for the next program, whose own asks it to. A service that ends takes
no more clients, which then try again until the next one listens.
"""

from __future__ import annotations

import json
import os
import select
import socket
import socketserver
import struct
import sys
import threading
import time

_PATIENCE = 60.0  # seconds in which clients are to come to a service of its own,
_LINGER = 2.0  # and after which it ends when all have gone
_LARGEST = 1 << 30  # bytes of a message
_LOOK = 0.2  # between two looks whether a client that waits is still there


class StoreError(RuntimeError):
    """A key that did not come, or a service that is gone."""


class EpochError(StoreError):
    """A failure that was told to all while a key was waited for."""


class _State:
    """What the service knows."""

    def __init__(self):
        self.values: dict[str, object] = {}
        self.epoch = 0
        self.reasons: list[str] = []  # why each epoch ended: the first failure, not those that follow from it
        self.clients = 0
        self.ending = False  # no more clients
        self.until: float | None = None  # of a service of its own: until when it waits for clients if there are none
        self.renewed = False  # another program begins
        self.here: dict[str, str] = {}  # those who attend: an identity each, and the name
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

    def get(self, key: str, seconds: float, since: int | None = None, gone=lambda: False):
        """The value, once it is there; since: the epoch that the client knows; gone: whether it is there no more."""
        end = time.monotonic() + seconds
        with self.changed:
            epoch = self.epoch if since is None else since
            while key not in self.values:
                if self.epoch != epoch:
                    raise EpochError(self.reasons[epoch])
                left = end - time.monotonic()
                if left <= 0:
                    have = ", ".join(sorted(self.values)) or "nothing"
                    raise StoreError(f"no {key!r} within {seconds:g} s; there is {have}")
                if not self.changed.wait(min(left, _LOOK)) and gone():
                    raise EOFError
            return self.values[key]

    def bump(self, reason: str) -> int:
        with self.changed:
            self.epoch += 1
            self.reasons.append(reason)
            self.changed.notify_all()
            return self.epoch

    def current_epoch(self) -> int:
        return self.epoch

    def attend(self, name: str, identity: str):
        with self.changed:
            self.here[identity] = name

    def depart(self, identities: list[str]):
        """They have ended as they should."""
        with self.changed:
            for identity in identities:
                self.here.pop(identity, None)

    def attending(self) -> list[str]:
        with self.changed:
            return sorted(self.here.values())

    def lost(self, identity: str):
        """The connection of one who attended has ended."""
        with self.changed:
            name = self.here.pop(identity, None)
            if name is not None:
                self.bump(f"{name} failed (its process has ended: it was killed or it crashed)")

    def come(self) -> bool:
        """A client; False: too late."""
        with self.changed:
            self.clients += not self.ending
            return not self.ending

    def go(self):
        with self.changed:
            self.clients -= 1
            if self.until is not None and not self.clients:
                self.values.clear()
                self.reasons.clear()
                self.epoch = 0
                self.until = time.monotonic() + (_PATIENCE if self.renewed else _LINGER)
                self.renewed = False
            self.changed.notify_all()

    def renew(self):
        self.renewed = True

    def keys(self) -> list[str]:
        with self.changed:
            return sorted(self.values)

    def delete(self, key: str) -> bool:
        with self.changed:
            return self.values.pop(key, None) is not None


_CALLS = ("set", "add", "get", "bump", "keys", "delete", "current_epoch", "depart", "attend", "attending",
          "renew")  # fmt: skip


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
    if size > _LARGEST:
        raise ValueError("this is no message")
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
        if not state.come():
            return
        try:
            while True:
                call, *arguments = _receive(self.request)
                try:
                    if call not in _CALLS:
                        raise StoreError(f"there is no call {call!r}")
                    if call == "attend":
                        attends = arguments[1]
                        _keep_alive(self.request)
                    more = {"gone": self._gone} if call == "get" else {}
                    _send(self.request, [True, getattr(state, call)(*arguments, **more)])
                except (StoreError, TypeError, ValueError) as error:
                    _send(self.request, [False, str(error), isinstance(error, EpochError)])
        except (EOFError, OSError):
            pass
        finally:
            if attends is not None:
                state.lost(attends)
            state.go()

    def _gone(self) -> bool:
        """Whether the client, which waits for an answer, has ended: its connection can be read, and there is nothing."""
        poll = select.poll()
        poll.register(self.request, select.POLLIN)
        try:
            return bool(poll.poll(0)) and not self.request.recv(1, socket.MSG_PEEK)
        except OSError:
            return True


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

    def __init__(self, address: str, timeout: float = 300.0, prefix: str = "", epoch: int | None = None):
        self.address, self.timeout, self.prefix = address, timeout, prefix
        self.epoch_known = epoch  # of those who wait without naming one
        self._local = threading.local()
        self._attended: list[tuple[str, socket.socket]] = []  # by identity

    def within(self, prefix: str, epoch: int | None = None) -> Store:
        """The keys that begin with this prefix, without it. epoch: that of all who wait for them."""
        made = Store(self.address, self.timeout, self.prefix + prefix, self.epoch_known if epoch is None else epoch)
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
                return self._greeted(socket.create_connection((host, int(port)), timeout=self.timeout))
            except (OSError, EOFError) as error:
                if time.monotonic() > end:
                    raise StoreError(f"no key-value service at {self.address}: {error}") from None
                time.sleep(0.02)

    def _greeted(self, made: socket.socket) -> socket.socket:
        """A connection that the service has taken. One that ends, or that is to this socket itself, does not answer."""
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _send(made, ["current_epoch"])
            answer = _receive(made)
            if answer == ["current_epoch"]:
                raise ConnectionRefusedError("nobody listens")
            if answer[0] is not True:
                raise ValueError
            made.settimeout(None)
            return made
        except (ValueError, TypeError, LookupError):
            made.close()
            raise StoreError(f"no key-value service is at {self.address}, but something else") from None
        except BaseException:
            made.close()
            raise

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
        since = self.epoch_known if since is None else since
        return self._call("get", self.prefix + key, self.timeout if timeout is None else timeout, since)

    def epoch(self) -> int:
        return self._call("current_epoch")

    def attend(self, name: str):
        """Has the service raise the epoch, with this name as the reason, when this process ends before it has departed."""
        connection, identity = self._connect(), os.urandom(8).hex()
        _send(connection, ["attend", name, identity])
        _receive(connection)
        self._attended.append((identity, connection))

    def depart(self):
        """This process ends as it should, under all names that it attended by."""
        self._call("depart", [identity for identity, _ in self._attended])
        while self._attended:
            self._attended.pop()[1].close()

    def attending(self) -> list[str]:
        """The names of all who attend."""
        return self._call("attending")

    def add(self, key: str, amount: int) -> int:
        return self._call("add", self.prefix + key, amount)

    def delete_key(self, key: str) -> bool:
        return self._call("delete", self.prefix + key)

    def keys(self) -> list[str]:
        return [k.removeprefix(self.prefix) for k in self._call("keys") if k.startswith(self.prefix)]

    def renew(self):
        """Has a service of its own wait for the clients of another program."""
        self._call("renew")

    def bump(self, reason: str) -> int:
        """Raises the epoch: who waits for a key is told the reason."""
        return self._call("bump", reason)

    def close(self):
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None


def _serve(port: int, host: str):
    """See Note [One program after the other]. The process that started this may end before."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        try:
            service = Service(port, host)
        except OSError:  # the port is taken
            try:
                Store(f"{host}:{port}", 1.0).renew()
                return
            except StoreError:  # by somebody else, or by a service that has just ended
                time.sleep(0.1)
        else:
            serve_clients(service)
            return


def serve_clients(service: Service):
    """Until clients have come and all have gone, or nobody came for a minute."""
    state = service.state
    with state.changed:
        state.until = time.monotonic() + _PATIENCE
        while state.clients or time.monotonic() < state.until:
            state.changed.wait(1.0 if state.clients else state.until - time.monotonic())
        state.ending = True
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
