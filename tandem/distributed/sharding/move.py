"""Redistribution inside a graph: a rank's part of a value becomes its part under other placements.

Note [Order of mesh axes]
An axis of a tensor that several mesh axes divide is divided by the first of them first. So the parts of a later mesh axis depend on
those of an earlier one: before an earlier one changes how it divides an axis, later ones that divide it are gathered, and divide it
again afterwards.
"""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.distributed.sharding.layout import REPLICATE, Grid, Placements, span
from tandem.distributed.sharding.placements import Partial, Shard
from tandem.errors import UnsupportedError
from tandem.graph.ir import Value
from tandem.ops.collective import AllGather, AllReduce, AllToAll, ReduceScatter


class Mover:
    """Makes redistributions, and notes what they move: (collective, bytes). tag: Note [Tags] in ops/collective.py."""

    def __init__(self, grid: Grid, tag: int = 0):
        self.grid, self.tag = grid, tag
        self.moved: list[tuple[str, int]] = []

    def move(self, value: Value, shape, old: Placements, new: Placements) -> Value:
        """value, this rank's part of a tensor of `shape` under `old`, under `new`."""
        if old == new:
            return value
        changing = self._changing(old, new)
        if len(changing) == 1:  # where nothing else depends on it, one collective may do
            (m,) = changing
            made = self._direct(value, shape, old, m, new[m])
            if made is not None:
                return made
        now = list(old)
        for m in reversed(changing):
            value = self._whole(value, shape, tuple(now), m)
            now[m] = REPLICATE
        for m in changing:
            value = self._divided(value, shape, tuple(now), m, new[m])
            now[m] = new[m]
        return value

    def _changing(self, old: Placements, new: Placements) -> list[int]:
        """Mesh axes whose placement changes, and those that have to be gathered meanwhile."""
        changing: set[int] = set()
        for m, (a, b) in enumerate(zip(old, new, strict=True)):
            if a == b and m not in changing:
                continue
            changing.add(m)
            dims = {p.dim for p in (a, b) if isinstance(p, Shard)}
            for later in range(m + 1, len(old)):
                if any(isinstance(p, Shard) and p.dim in dims for p in (old[later], new[later])):
                    changing.add(later)
        return sorted(changing)

    # -- along one mesh axis

    def _note(self, name: str, value: Value):
        self.moved.append((name, math.prod(value.shape) * value.dtype.itemsize))

    def _counts(self, shape, placements: Placements, m: int, dim: int) -> list[int]:
        """How many of axis `dim` each rank along mesh axis m has."""
        whole = self.grid.spans(shape, placements, before=m)[dim][1]
        return [span(whole, self.grid.shape[m], i)[1] for i in range(self.grid.shape[m])]

    def _group(self, m: int) -> tuple[int, int]:
        return self.grid.tokens[m], self.grid.shape[m]

    def _whole(self, value: Value, shape, now: Placements, m: int) -> Value:
        """Replicated along mesh axis m."""
        p = now[m]
        if self.grid.shape[m] == 1:
            return value
        if isinstance(p, Partial):
            return self._reduced(value, m, p.reduce_op)
        if isinstance(p, Shard):
            return self._gathered(value, m, p.dim, self._counts(shape, now, m, p.dim))
        return value

    def _divided(self, value: Value, shape, now: Placements, m: int, to) -> Value:
        """A value that is replicated along mesh axis m, as `to` says."""
        if isinstance(to, Shard):
            return self._sliced(value, to.dim, *span(value.shape[to.dim], self.grid.shape[m], self.grid.coordinate[m]))
        if isinstance(to, Partial):
            return self._as_partial(value, m, to)
        return value

    def _direct(self, value: Value, shape, old: Placements, m: int, to) -> Value | None:
        """One collective from one placement to the other, where there is one."""
        p = old[m]
        if self.grid.shape[m] == 1 or not isinstance(to, Shard):
            return None
        if isinstance(p, Partial) and self._defined(value.dtype, p.reduce_op):
            return self._reduce_scattered(value, m, to.dim, p.reduce_op)
        if isinstance(p, Shard):
            return self._exchanged(value, m, p.dim, to.dim, self._counts(shape, old, m, p.dim))
        return None

    # -- collectives

    @staticmethod
    def _defined(dtype, reduction: str) -> bool:
        return dtype is not dtypes.bool_ and not (dtype.is_complex and reduction in ("min", "max"))

    def _reduced(self, value: Value, m: int, reduction: str) -> Value:
        if value.dtype is dtypes.bool_:  # any and all, as maximum and minimum of numbers
            made = self._reduced(F.Cast(dtypes.uint8)(value), m, reduction)
            return F.Cast(dtypes.bool_)(made)
        if not self._defined(value.dtype, reduction):
            raise UnsupportedError("redistribute", f"Partial({reduction}) of {value.dtype}")
        self._note("all_reduce", value)
        return AllReduce(*self._group(m), reduction, self.tag)(value)

    def _gathered(self, value: Value, m: int, dim: int, counts: list[int]) -> Value:
        rows = _to_front(value, dim)
        made = AllGather(*self._group(m), () if len(set(counts)) == 1 else tuple(counts), self.tag)(rows)
        self._note("all_gather", made)
        return _from_front(made, dim)

    def _reduce_scattered(self, value: Value, m: int, dim: int, reduction: str) -> Value:
        rows = _to_front(value, dim)
        counts = [span(rows.shape[0], self.grid.shape[m], i)[1] for i in range(self.grid.shape[m])]
        uneven = () if len(set(counts)) == 1 else tuple(counts)
        self._note("reduce_scatter", rows)
        made = ReduceScatter(*self._group(m), reduction, counts[self.grid.coordinate[m]], uneven, self.tag)(rows)
        return _from_front(made, dim)

    def _exchanged(self, value: Value, m: int, old: int, new: int, counts: list[int]) -> Value:
        """From a part along one axis to a part along another: an all-to-all of blocks."""
        n, me = self._group(m)[1], self.grid.coordinate[m]
        blocks, received, at = [], [], 0
        for i in range(n):
            start, count = span(value.shape[new], n, i)
            blocks.append(self._sliced(value, new, start, count))
        mine = blocks[me].shape
        for count in counts:
            received.append(tuple(count if d == old else s for d, s in enumerate(mine)))
        flat = F.Concat(0)(*(F.Reshape((math.prod(b.shape),))(b) for b in blocks))
        sends, takes = tuple(math.prod(b.shape) for b in blocks), tuple(math.prod(s) for s in received)
        self._note("all_to_all", flat)
        made = AllToAll(*self._group(m), sends, takes)(flat)
        parts = []
        for shape in received:
            parts.append(F.Reshape(shape)(self._sliced(made, 0, at, math.prod(shape))))
            at += math.prod(shape)
        return F.Concat(old)(*parts)

    def _as_partial(self, value: Value, m: int, to: Partial) -> Value:
        """What reduces to the value: itself on all ranks, or on one of them where all others have zeros."""
        if to.reduce_op in ("avg", "min", "max") or self.grid.coordinate[m] == 0:
            return value
        neutral = 0 if to.reduce_op == "sum" else 1
        return F.Expand(value.shape)(F.Reshape((1,) * value.ndim)(F.Constant(neutral, value.dtype)()))

    @staticmethod
    def _sliced(value: Value, dim: int, start: int, count: int) -> Value:
        starts = tuple(start if d == dim else 0 for d in range(value.ndim))
        sizes = tuple(count if d == dim else n for d, n in enumerate(value.shape))
        return F.Slice(starts, (1,) * value.ndim, sizes)(value) if count != value.shape[dim] else value


def _to_front(value: Value, dim: int) -> Value:
    return value if dim == 0 else F.Permute((dim, *(d for d in range(value.ndim) if d != dim)))(value)


def _from_front(value: Value, dim: int) -> Value:
    return value if dim == 0 else F.Permute((*range(1, dim + 1), 0, *range(dim + 1, value.ndim)))(value)
