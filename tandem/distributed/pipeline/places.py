"""Where stages are, and which rank sends which part of a value to which other one."""

from __future__ import annotations

import functools
from typing import NamedTuple

from tandem.distributed.sharding.layout import Grid, Placements
from tandem.distributed.sharding.placements import Replicate

ONE: Placements = (Replicate(),)


class Place(NamedTuple):
    """Ranks of a group in a grid: those that compute a stage together."""

    ranks: tuple[int, ...]
    shape: tuple[int, ...] = (1,)

    def coordinate(self, rank: int) -> tuple[int, ...]:
        index, made = self.ranks.index(rank), []
        for n in reversed(self.shape):
            index, c = divmod(index, n)
            made.append(c)
        return tuple(reversed(made))

    def box(self, rank: int, shape, placements: Placements) -> tuple[tuple[int, int], ...]:
        """(start, count) along each axis of what a rank has."""
        return tuple(Grid(self.shape, self.coordinate(rank), (0,) * len(self.shape)).spans(shape, placements))


class Block(NamedTuple):
    """A part of a value that goes from a rank to another: (start, count) along each axis."""

    source: int
    target: int
    box: tuple[tuple[int, int], ...]

    @property
    def elements(self) -> int:
        count = 1
        for _, n in self.box:
            count *= n
        return count

    def inside(self, box) -> tuple:
        """As an index into what a rank has."""
        return tuple(slice(s - first, s - first + n) for (s, n), (first, _) in zip(self.box, box, strict=True))


@functools.cache
def blocks(shape, source: Place, old: Placements, target: Place, new: Placements) -> tuple[Block, ...]:
    """What must be sent so that a value that lies at `source` lies at `target`. Ranks that have the same take turns."""
    holders: dict[tuple, list[int]] = {}
    for rank in source.ranks:
        holders.setdefault(source.box(rank, shape, old), []).append(rank)
    made = []
    for i, rank in enumerate(target.ranks):
        wanted = target.box(rank, shape, new)
        for box, ranks in holders.items():
            common = tuple(_common(a, b) for a, b in zip(box, wanted, strict=True))
            if all(n > 0 for _, n in common):
                made.append(Block(rank if rank in ranks else ranks[i % len(ranks)], rank, common))
    return tuple(made)


def _common(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    start = max(a[0], b[0])
    return start, min(a[0] + a[1], b[0] + b[1]) - start
