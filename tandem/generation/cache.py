"""Keys and values of the tokens so far, as state that a compiled step writes in place.

Note [Slots]
A token at position p of its sequence has slot p, whatever the other sequences of the batch are doing, and a query at position p
looks at slots 0 to p. So prompts of different lengths are padded at their ends: what padding leaves in later slots is never
seen, and is overwritten when the sequence gets there. A step looks at the first `seen` slots only; how many is a size like any
other, so one program serves all of them.
"""

from __future__ import annotations

import tandem as td


class Cache:
    """What attention layers ask of a cache: `extend(layer, k, v)`. A step begins with `begin`.

    positions: (n, t) of the tokens of this step; mask: (n, 1, t, seen), True where a query looks.
    """

    def __init__(self):
        self.positions = self.mask = None
        self.seen = 0

    def begin(self, positions, seen: int):
        """Tokens at these positions are about to come; the last of all is before position `seen`."""
        self.positions, self.seen = positions, seen
        self.mask = td.arange(seen, device=positions.device) <= positions[:, None, :, None]

    def extend(self, layer: int, k, v):
        """Takes in k, v (n, heads, t, d) of this step; gives those of all slots seen: (n, heads, seen, d)."""
        raise NotImplementedError


class StaticCache(Cache):
    """Memory for `length` tokens of every sequence from the start.

    >>> cache = td.generation.StaticCache(layers=1, batch=2, heads=3, length=8, width=4)
    >>> cache.begin(td.tensor([[0], [5]]), 6)
    >>> cache.extend(0, td.ones(2, 3, 1, 4), td.ones(2, 3, 1, 4))[0].sum((1, 3))
    tensor([[12.,  0.,  0.,  0.,  0.,  0.],
            [ 0.,  0.,  0.,  0.,  0., 12.]])
    """

    def __init__(self, layers: int, batch: int, heads: int, length: int, width: int, dtype=None, device=None):
        super().__init__()
        self.length = length
        shape = (batch, length, heads, width)
        self.keys = [td.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        self.values = [td.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        self._rows = td.arange(batch, device=device)[:, None]

    def extend(self, layer: int, k, v):
        found = []
        for store, new in ((self.keys[layer], k), (self.values[layer], v)):
            store[self._rows, self.positions] = new.permute(0, 2, 1, 3)
            found.append(store[:, : self.seen].permute(0, 2, 1, 3))
        return found

    def reorder(self, rows):
        """Has row i go on from what row rows[i] was."""
        for stores in (self.keys, self.values):
            for i, store in enumerate(stores):
                stores[i] = store[rows]
