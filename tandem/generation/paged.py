"""A cache in blocks of a pool, which sequences take as they grow and give back when they end."""

from __future__ import annotations

import tandem as td
from tandem.errors import ValueRangeError
from tandem.generation.cache import Cache, CacheStep


class BlockPool:
    """Numbers of blocks: which are free, and which a sequence has. Block 0 is nobody's: padding is written there.

    >>> pool = td.generation.BlockPool(blocks=4, size=2)
    >>> pool.grow("a", 3), pool.free, pool.grow("b", 5)
    (True, 1, False)
    """

    def __init__(self, blocks: int, size: int):
        if blocks < 2 or size < 1:
            raise ValueRangeError("BlockPool", f"{blocks} blocks of {size} tokens hold nothing")
        self.size, self.blocks = size, blocks
        self._free = list(range(blocks - 1, 0, -1))
        self.tables: dict = {}  # sequence -> its blocks

    @property
    def free(self) -> int:
        return len(self._free)

    def needed(self, sequence, tokens: int) -> int:
        """Blocks that a sequence lacks for so many tokens."""
        return max(-(-tokens // self.size) - len(self.tables.get(sequence, ())), 0)

    def grow(self, sequence, tokens: int) -> bool:
        """Makes room for so many tokens of a sequence; False, and nothing is taken, if there is too little."""
        needed = self.needed(sequence, tokens)
        if needed > len(self._free):
            return False
        table = self.tables.setdefault(sequence, [])
        table.extend(self._free.pop() for _ in range(needed))
        return True

    def release(self, sequence):
        self._free.extend(reversed(self.tables.pop(sequence, [])))

    def table(self, sequences: list, blocks: int) -> list[list[int]]:
        """(len(sequences), blocks) numbers, those that a sequence does not have as 0."""
        found = [self.tables.get(s, []) for s in sequences]
        return [(t + [0] * blocks)[:blocks] for t in found]


class _PagedStep(CacheStep):
    """state: keys, values, and the numbers of the blocks of each row."""

    def __init__(self, state: tuple, positions, seen: int):
        keys, _, self._table = state
        self._size = keys[0].shape[1]
        super().__init__(state, positions, self._table.shape[1] * self._size)
        self._blocks = td.take_along_dim(self._table, positions // self._size, 1)
        self._places = positions % self._size

    def extend(self, layer: int, k, v):
        found = []
        for stores, new in zip(self.state[:2], (k, v), strict=True):
            store = stores[layer]
            store[self._blocks, self._places] = new.permute(0, 2, 1, 3)
            rows = store[self._table].reshape(self._table.shape[0], self.seen, *store.shape[2:])
            found.append(rows.permute(0, 2, 1, 3))
        return found


class PagedCache(Cache):
    """Keys and values of any sequences in one pool. `select` says which ones the rows of the next step are."""

    Step = _PagedStep

    def __init__(self, layers: int, heads: int, width: int, blocks: int, size: int = 16, dtype=None, device=None):
        self.pool = BlockPool(blocks, size)
        shape = (blocks, size, heads, width)
        self.keys = [td.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        self.values = [td.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        self.table = self._selected = None

    @property
    def state(self) -> tuple:
        return self.keys, self.values, self.table

    @property
    def length(self) -> int:
        """The most tokens that one sequence can have."""
        return (self.pool.blocks - 1) * self.pool.size

    def select(self, sequences: list, seen: int):
        """Rows are these sequences, of at most `seen` tokens with those to come; None is padding. Room must have been made."""
        count = max(-(-seen // self.pool.size), 2)  # one would be a program of its own
        numbers = self.pool.table(sequences, count)
        if numbers != self._selected:
            self._selected = numbers
            self.table = td.tensor(numbers, device=self.keys[0].device)
