"""Shared memory in pieces, with room for tensors one after the other."""

from __future__ import annotations

from tandem import _runtime
from tandem.multiprocessing import pack

SharedMemory = _runtime.SharedMemory
_ALIGNMENT = 64


class Space:
    """Where pack() puts tensors. Pieces have numbers; `unsent` are those that the other side has not got yet."""

    smallest = 1 << 20  # bytes of a piece

    def __init__(self):
        self.pieces: dict[int, SharedMemory] = {}
        self.unsent: list[int] = []
        self._by_inode: dict[int, int] = {}
        self._next = 0
        self._current: int | None = None
        self._used = 0

    def add(self, memory: SharedMemory) -> int:
        key = self._next
        self._next += 1
        self.pieces[key] = memory
        self._by_inode[memory.inode] = key
        self.unsent.append(key)
        return key

    def new_piece(self, count: int) -> int:
        return self.add(SharedMemory(max(count, self.smallest)))

    def allocate(self, count: int) -> tuple[int, int]:
        """(piece, offset) of so many bytes."""
        if self._current is None or self._used + count > self.pieces[self._current].bytes:
            self._current, self._used = self.new_piece(count), 0
        offset = self._used
        self._used += -(-count // _ALIGNMENT) * _ALIGNMENT
        return self._current, offset

    def place(self, t) -> tuple:
        """(piece, offset, strides) of a tensor: where it is, if that is shared; else where it was copied to."""
        found = _runtime.shared_memory_of(t)
        if found is not None and all(s >= 0 for s in t.strides) and (key := self.key_of(found[0])) is not None:
            return key, found[1], tuple(t.strides)
        key, offset = self.allocate(t.numel() * t.dtype.itemsize)
        pack.write(self.pieces[key], offset, t)
        return key, offset, None

    def place_bytes(self, view) -> tuple:
        key, offset = self.allocate(view.nbytes)
        pack.write_bytes(self.pieces[key], offset, view)
        return key, offset

    def key_of(self, memory: SharedMemory) -> int | None:
        """The number of a piece; memory from elsewhere becomes one if it can be sent."""
        key = self._by_inode.get(memory.inode)
        return self.add(memory) if key is None and memory.fd >= 0 else key
