"""Messages on a socket: JSON, tensors, and nothing that could run code at the other end.

    4 bytes length of the JSON, 8 bytes of tensor data, then both. JSON: [content, [[dtype, shape, place], ...]]

A tensor's place is 0 for elements that follow in the data, 1 for shared memory whose descriptor comes with the message, which
is how larger ones go between processes of one host.
"""

from __future__ import annotations

import array
import contextlib
import json
import math
import socket
import struct

from tandem import _runtime
from tandem.constructors import empty
from tandem.dtypes import ALL
from tandem.multiprocessing.shared import attach, shared_copy
from tandem.ops.torch_names import frombuffer

_HEAD = struct.Struct("<IQ")
_LARGEST_TEXT = 1 << 30
_SHARED = 1 << 16  # bytes from which on a tensor goes by shared memory
_DESCRIPTORS = 200  # of one message: the system allows 253
_DTYPES = {d.name: d for d in ALL}
INLINE, SHARED = 0, 1


class Closed(ConnectionError):
    """The other end is gone."""


class Published:
    """A copy of a tensor that nobody will ever change: on shared memory, if it is large, so that it goes to any number of processes
    without further copies."""

    __slots__ = ("tensor",)

    def __init__(self, tensor):
        large = tensor.numel() * tensor.dtype.itemsize >= _SHARED
        self.tensor = shared_copy(tensor) if large else tensor.detach().clone()


class Connection:
    """One end of a socket. One thread at a time sends, and one receives."""

    def __init__(self, sock: socket.socket):
        self.socket = sock
        self.sent = self.received = 0  # bytes so far, without shared memory
        self._shares = sock.family == socket.AF_UNIX
        self._buffer = bytearray()
        self._descriptors: list[int] = []
        if not self._shares:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for fd in self._descriptors:
            socket.close(fd)
        self._descriptors.clear()

    # -- sending

    def send(self, content, tensors=()) -> None:
        described, inline, shared = [], [], []
        for t in tensors:
            fixed = isinstance(t, Published)
            t = (t.tensor if fixed else t).detach()
            t = t if _runtime.device_index(t) == 0 else t.cpu()
            count = t.numel() * t.dtype.itemsize
            if self._shares and count >= _SHARED and len(shared) < _DESCRIPTORS:
                shared.append(_runtime.shared_memory_of(t)[0] if fixed else _on_shared_memory(t))
                described.append([t.dtype.name, list(t.shape), SHARED])
            else:
                if count:
                    inline.append(_bytes(t))
                described.append([t.dtype.name, list(t.shape), INLINE])
        text = json.dumps([content, described] if described else [content], separators=(",", ":")).encode()
        size = sum(map(len, inline))
        head = _HEAD.pack(len(text), size) + text
        try:
            if shared:
                fds = array.array("i", [memory.fd for memory in shared])
                self.socket.sendmsg([head[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
                head = head[1:]
            if inline and size < _SHARED:
                self.socket.sendall(b"".join([head, *inline]))
            else:
                self.socket.sendall(head)
                for data in inline:
                    self.socket.sendall(data)
        except OSError as error:
            raise Closed(str(error)) from None
        self.sent += _HEAD.size + len(text) + size

    # -- receiving

    def receive(self) -> tuple:
        """(content, tensors) of the next message."""
        length, size = _HEAD.unpack(self._take(_HEAD.size))
        if length > _LARGEST_TEXT:
            raise Closed("what came is no message")
        found = json.loads(self._take(length))
        content, described = found[0], found[1] if len(found) > 1 else []
        self.received += _HEAD.size + length + size
        tensors = [self._tensor(*d) for d in described]
        return content, tensors

    def _tensor(self, name: str, shape: list, place: int):
        dtype = _DTYPES[name]
        if not all(isinstance(n, int) and n >= 0 for n in shape):
            raise Closed(f"{shape!r} is no shape")
        if place == SHARED:
            memory = attach(self._descriptors.pop(0))
            return memory.tensor(dtype, tuple(shape))
        count = math.prod(shape)
        if not count:
            return empty(tuple(shape), dtype=dtype)
        return frombuffer(self._read(count * dtype.itemsize), dtype=dtype).reshape(tuple(shape))

    def _take(self, count: int) -> bytes:
        buffer = self._buffer
        while len(buffer) < count:
            self._fill(max(count - len(buffer), 4096))
        taken = bytes(buffer[:count])
        del buffer[:count]
        return taken

    def _fill(self, count: int):
        try:
            if self._shares:
                room = socket.CMSG_SPACE(_DESCRIPTORS * 4)
                data, ancillary, _, _ = self.socket.recvmsg(min(count, 1 << 16), room, socket.MSG_CMSG_CLOEXEC)
                for level, kind, found in ancillary:
                    if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                        fds = array.array("i")
                        fds.frombytes(found[: len(found) - len(found) % fds.itemsize])
                        self._descriptors.extend(fds)
            else:
                data = self.socket.recv(min(count, 1 << 16))
        except OSError as error:
            raise Closed(str(error)) from None
        if not data:
            raise Closed("the connection was closed")
        self._buffer += data

    def _read(self, count: int) -> bytearray:
        """So many bytes, of a memory of their own."""
        made = bytearray(count)
        there = min(len(self._buffer), count)
        made[:there] = self._buffer[:there]
        del self._buffer[:there]
        view = memoryview(made)[there:]
        while view:
            try:
                got = self.socket.recv_into(view)
            except OSError as error:
                raise Closed(str(error)) from None
            if not got:
                raise Closed("the connection was closed in the middle of a tensor")
            view = view[got:]
        return made


def _on_shared_memory(t):
    place = _runtime.shared_memory_of(shared_copy(t))
    return place[0]


def _bytes(t) -> memoryview:
    return memoryview(t.contiguous().reshape(-1).view("uint8").numpy())
