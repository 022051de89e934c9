"""Messages on a socket: JSON, tensors, and nothing that could run code at the other end.

    4 bytes length of the JSON, 8 bytes of tensor data, then both
    JSON: [content, [[dtype, shape, place], ...], [pieces given back], [pieces let go of]], without what is empty at the end

A tensor's place is -1 for elements that follow in the data, or a piece of shared memory, which is how larger ones go between
processes of one host.

Note [Pieces]
New shared memory costs more than the copy into it: both sides fault its pages in. So a connection keeps the pieces that it has
sent tensors in, up to a limit. The receiver's tensors lie in a piece; once there are none any more it gives the piece back, with
the next message that goes the other way, and the sender puts another tensor there. The descriptor of a piece goes with the
message that first names it.
"""

from __future__ import annotations

import array
import contextlib
import json
import math
import os
import select
import socket
import struct

from tandem import _runtime
from tandem.dtypes import ALL
from tandem.multiprocessing.shared import attach, copy_into, shared_copy
from tandem.ops.torch_names import frombuffer
from tandem.tensors.constructors import empty

_HEAD = struct.Struct("<IQ")
_LARGEST_TEXT = 1 << 30
_SHARED = 1 << 16  # bytes from which on a tensor goes by shared memory
_FEW = 1024  # elements
_DESCRIPTORS = 200  # of one message: the system allows 253
_KEPT = 1 << 28  # bytes of pieces that a connection keeps
_DTYPES = {d.name: d for d in ALL}
_encode = json.JSONEncoder(separators=(",", ":")).encode
_INLINE, _ONCE = -1, -2  # places: in the message; memory for this message alone


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
        self._poll = select.poll()  # select knows the first 1024 descriptors alone
        self._poll.register(sock, select.POLLIN)
        self._descriptors: list[int] = []
        self._sent = Pieces()
        self._held: dict[int, _runtime.SharedMemory] = {}  # pieces of the other side
        self._in_use: set[int] = set()  # those with tensors of ours
        if not self._shares:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for fd in self._descriptors:
            os.close(fd)
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
                place, memory = (_ONCE, _runtime.shared_memory_of(t)[0]) if fixed else self._sent.put(t, count)
                if memory is not None:
                    shared.append(memory)
                described.append([t.dtype.name, list(t.shape), place])
            else:
                if count:
                    inline.append(_bytes(t))
                described.append([t.dtype.name, list(t.shape), _INLINE])
        parts = [content, described, self._given_back(), self._sent.take_dropped()]
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        text = _encode(parts).encode()
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
        content, described, back, dropped = (json.loads(self._take(length).decode()) + [[], [], []])[:4]
        self.received += _HEAD.size + length + size
        self._sent.take_back(back)
        tensors = [self._tensor(*d) for d in described]
        for piece in dropped:
            self._held.pop(piece, None)
        return content, tensors

    def give_back(self):
        """Tells the other side which pieces are free again, where no message goes there anyway."""
        if any(self._held[piece].users == 0 for piece in self._in_use):
            self.send(None)

    def drain(self):
        """Takes in what the other side has given back, if it has something. Closed if it has ended: over TCP, what is sent to it
        then is lost without a word."""
        while self._buffer or self.has_come(0):
            self.receive()

    def has_come(self, timeout: float) -> bool:
        """Whether something has come within so many seconds, or the other side has ended."""
        return bool(self._poll.poll(timeout * 1000))

    def _given_back(self) -> list[int]:
        free = [piece for piece in self._in_use if self._held[piece].users == 0]
        self._in_use.difference_update(free)
        return free

    def _tensor(self, name: str, shape: list, place: int):
        dtype = _DTYPES[name]
        if not all(isinstance(n, int) and n >= 0 for n in shape):
            raise Closed(f"{shape!r} is no shape")
        if place == _INLINE:
            count = math.prod(shape)
            if not count:
                return empty(tuple(shape), dtype=dtype)
            return frombuffer(self._read(count * dtype.itemsize), dtype=dtype).reshape(tuple(shape))
        memory = self._held.get(place)
        if memory is None:
            memory = attach(self._descriptors.pop(0))
            memory.close_fd()
            if place != _ONCE:
                self._held[place] = memory
        if place != _ONCE:
            self._in_use.add(place)
        return memory.tensor(dtype, tuple(shape))

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


class Pieces:
    """Shared memory that a connection has sent tensors in. See Note [Pieces]."""

    def __init__(self):
        self._memory: dict[int, _runtime.SharedMemory] = {}
        self._free: set[int] = set()
        self._dropped: list[int] = []
        self._next = 0

    def put(self, t, count: int) -> tuple:
        """(piece that has a copy of a tensor, its memory if the other side does not know it)."""
        fits = [p for p in self._free if count <= self._memory[p].bytes <= 4 * count]
        if fits:
            piece = min(fits, key=lambda p: self._memory[p].bytes)
            self._free.discard(piece)
            copy_into(self._memory[piece].tensor(t.dtype, tuple(t.shape)), t)
            return piece, None
        memory = _runtime.SharedMemory(count)
        copy_into(memory.tensor(t.dtype, tuple(t.shape)), t)
        kept = sum(m.bytes for m in self._memory.values())
        for piece in list(self._free):
            if kept + count > _KEPT:
                self._free.discard(piece)
                kept -= self._memory.pop(piece).bytes
                self._dropped.append(piece)
        if kept + count > _KEPT:
            return _ONCE, memory
        piece, self._next = self._next, self._next + 1
        self._memory[piece] = memory
        return piece, memory

    @property
    def are_lent(self) -> bool:
        return len(self._free) < len(self._memory)

    def take_back(self, pieces: list[int]):
        self._free.update(p for p in pieces if p in self._memory)

    def take_dropped(self) -> list[int]:
        dropped, self._dropped = self._dropped, []
        return dropped


def _bytes(t) -> bytes | memoryview:
    if t.numel() < _FEW:  # a copy is quicker than what a view takes
        return t.numpy().tobytes()
    return memoryview(t.contiguous().reshape(-1).view("uint8").numpy())
