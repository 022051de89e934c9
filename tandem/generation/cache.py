"""Keys and values of the tokens so far, as state that a compiled step writes in place.

Note [Slots]
A token at position p of its sequence has slot p, whatever the other sequences of the batch are doing, and a query at position p
looks at slots 0 to p. So prompts of different lengths are padded at their ends: what padding leaves in later slots is never
seen, and is overwritten when the sequence gets there. A step looks at the first `seen` slots only; how many is a size like any
other, so one program serves all of them.

Note [Windows]
Steps of one token look at a few slots more than there are tokens: `window` rounds up, by an eighth or by 32. So steps one after
another have the same sizes. A call of the same sizes is replayed without Python (td.compile, replay=True), and on a device the
whole step is recorded once and launched again.
"""

from __future__ import annotations

import tandem as td


def window(seen: int) -> int:
    """How many slots a step of one token looks at.

    >>> [td.generation.cache.window(n) for n in (1, 100, 513)]
    [32, 128, 576]
    """
    step = max(32, 1 << max(seen.bit_length() - 4, 0))
    return -(-seen // step) * step


class CacheStep:
    """A cache while one step runs, as attention layers see it: `extend(layer, k, v)`.

    positions: (n, t) of the tokens of this step; mask: (n, 1, t, seen), True where a query looks.
    """

    def __init__(self, state: tuple, positions, seen: int):
        self.state, self.positions, self.seen = state, positions, seen
        self.mask = td.arange(seen, device=positions.device) <= positions[:, None, :, None]

    def extend(self, layer: int, k, v):
        """Takes in k, v (n, heads, t, d) of this step; gives those of all slots seen: (n, heads, seen, d)."""
        raise NotImplementedError


class Cache:
    """State, and the kind of step that writes it."""

    Step: type[CacheStep]

    @property
    def state(self) -> tuple:
        """Tensors, and lists of one for each layer, that a step reads and writes."""
        raise NotImplementedError

    def begin(self, positions, seen: int) -> CacheStep:
        """A step with tokens at these positions, the last of them before `seen`."""
        return self.Step(self.state, positions, seen)


class _StaticStep(CacheStep):
    def __init__(self, state: tuple, positions, seen: int):
        super().__init__(state, positions, seen)
        self._rows = td.arange(positions.shape[0], device=positions.device)[:, None]

    def extend(self, layer: int, k, v):
        found = []
        for stores, new in zip(self.state, (k, v), strict=True):
            store = stores[layer]
            store[self._rows, self.positions] = new.permute(0, 2, 1, 3)
            found.append(store[:, : self.seen].permute(0, 2, 1, 3))
        return found


class StaticCache(Cache):
    """Memory for `length` tokens of every sequence from the start.

    >>> cache = td.generation.StaticCache(layers=1, batch=2, heads=3, length=8, width=4)
    >>> step = cache.begin(td.tensor([[0], [5]]), 6)
    >>> step.extend(0, td.ones(2, 3, 1, 4), td.ones(2, 3, 1, 4))[0].sum((1, 3))
    tensor([[12.,  0.,  0.,  0.,  0.,  0.],
            [ 0.,  0.,  0.,  0.,  0., 12.]])
    """

    Step = _StaticStep

    def __init__(self, layers: int, batch: int, heads: int, length: int, width: int, dtype=None, device=None):
        self.length = length
        shape = (batch, length, heads, width)
        self.keys = [td.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        self.values = [td.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]

    @property
    def state(self) -> tuple:
        return self.keys, self.values

    def reorder(self, rows):
        """Has row i go on from what row rows[i] was."""
        for stores in (self.keys, self.values):
            for i, store in enumerate(stores):
                stores[i] = store[rows]
