"""Memory for batches in a worker process: pieces of shared memory that come back when the main process is done with a batch.

So after the first few batches no memory is allocated, mapped or faulted in any more, and no descriptor travels.
"""

from __future__ import annotations

from tandem.multiprocessing.space import Space

_PIECE = 1 << 16


class Arena(Space):
    smallest = _PIECE

    def __init__(self):
        super().__init__()
        self._free: list[int] = []
        self._batch: list[int] = []  # pieces of this batch
        self._total = 0  # bytes of this batch
        self._typical = _PIECE  # bytes of the largest batch lately
        self.dropped: list[int] = []  # pieces that the other side may forget

    def begin(self):
        """A new batch: nothing of an earlier one is written any more."""
        self._current, self._used, self._total = None, 0, 0
        self._batch = []

    def end(self) -> list[int]:
        """The pieces that hold the batch."""
        self._typical = max(self._total, int(self._typical * 0.95))
        return self._batch

    def release(self, keys: list[int]):
        """The main process needs these no more."""
        for key in keys:
            # Somebody here may have kept a tensor on it; a piece much too small will not be asked for again.
            if self.pieces[key].users or self.pieces[key].bytes < self._typical // 2:
                self._by_inode.pop(self.pieces.pop(key).inode)
                self.dropped.append(key)
            else:
                self._free.append(key)

    def new_piece(self, count: int) -> int:
        wanted = max(count, self._typical - self._total, _PIECE)
        fitting = [key for key in self._free if self.pieces[key].bytes >= count]
        if fitting:
            key = min(fitting, key=lambda key: (self.pieces[key].bytes < wanted, self.pieces[key].bytes))
            self._free.remove(key)
        else:
            key = super().new_piece(wanted)
        self._batch.append(key)
        return key

    def allocate(self, count: int) -> tuple[int, int]:
        place = super().allocate(count)
        self._total += count + 64
        return place

    def key_of(self, memory):
        # A tensor of an earlier batch, or of the dataset, is copied: its memory has another life.
        key = self._by_inode.get(memory.inode)
        return key if key in self._batch else None

    def tensor(self, shape, dtype):
        """Room for a tensor of the batch."""
        count = dtype.itemsize
        for n in shape:
            count *= n
        key, offset = self.allocate(count)
        return self.pieces[key].tensor(dtype, tuple(shape), None, offset)
