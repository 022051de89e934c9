"""Weighted sums of elements at computed places of planes: what reading images between their elements comes to.

Planes are (n, c, size), places `taps` tensors (n, points) of offsets into a plane, the same for all its channels; a negative one
stands for nothing. The three operators are each other's gradients.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.graph.ir import Type
from tandem.ops import rules
from tandem.ops.define import LibraryOp, register
from tandem.ops.prepare import constant


def _read(x, offset):
    """Elements of x (n, c, size) at offsets (n, points): (n, c, points), 0 where there is none."""
    shape = (x.shape[0], x.shape[1], offset.shape[1])
    batch, channel = (F.Iota(shape, a, dtypes.int64)() for a in (0, 1))
    at = F.expand(F.unsqueeze(F.astype(F.maximum(offset, 0), dtypes.int64), 1), shape)
    return F.where(F.unsqueeze(F.less(offset, 0), 1), constant(0, x.dtype), F.Gather()(x, batch, channel, at))


class _Taps(LibraryOp):
    holomorphic = False
    taps: int
    run: int  # so many in a row are usually neighbours in memory

    def _taps_fit(self, points, rest):
        """points: the axes (n, points) of places; rest: offsets, and weights, if any."""
        fits = 1 <= self.taps <= 64 and self.run >= 1 and self.taps % self.run == 0
        fits = fits and len(rest) in (self.taps, 2 * self.taps)
        rules.allowed(self, fits, f"{self.taps} taps in runs of {self.run}, of {len(rest)} places and weights")
        for i, t in enumerate(rest):
            shaped = t.ndim == 2 and all(a == b for a, b in zip(t.shape, points, strict=True))
            rules.need(self, shaped, f"places or weights are {t!r}; they must have shape {points}")
            places = t.dtype in (dtypes.int32, dtypes.int64)
            rules.allowed(
                self, places if i < self.taps else t.dtype in rules.FLOATS, f"places or weights are {t.dtype}"
            )

    def _split(self, rest):
        return rest[: self.taps], rest[self.taps :]


@register
class TapSum(_Taps):
    """Sums of weights times elements: x, offsets, weights (none of them: all 1) -> (n, c, points)."""

    name = "tap_sum"
    batching = "first"
    routine = "tap_sum"
    only_on = "cpu"
    takes = "F[n,c,size] ?[n,points] ?[n,points]..."

    def infer(self, x: Type, *rest: Type) -> Type:
        return x.with_shape((*x.shape[:2], rest[0].shape[1]))

    def rule(self, x: Type, *rest: Type):
        self._taps_fit(rest[0].shape, rest)
        rules.allowed(self, all(t.dtype is x.dtype for t in rest[self.taps :]), "weights have the type of x")

    def bounds(self, x: Type, *rest: Type):
        return {1 + k: (x.shape[2], 2, True) for k in range(self.taps)}

    def attributes(self, x, *rest):
        return (self.taps, self.run), ()

    def grad(self, g, x, *rest):
        offsets, weights = self._split(rest)
        by_x = TapScatter(self.taps, self.run, x.shape[2])(g, *rest)
        by_weight = _several(TapDot(self.taps, self.run)(g, x, *offsets)) if weights else ()
        return by_x, *(None for _ in offsets), *by_weight

    def composed(self, x, *rest):
        offsets, weights = self._split(rest)
        total = None
        for k, offset in enumerate(offsets):
            read = _read(x, offset)
            read = read * F.unsqueeze(weights[k], 1) if weights else read
            total = read if total is None else total + read
        return total


@register
class TapScatter(_Taps):
    """TapSum's gradient by x: g (n, c, points), offsets, weights -> (n, c, size)."""

    name = "tap_scatter"
    batching = "first"
    routine = "tap_scatter"
    only_on = "cpu"
    size: object  # Dim
    takes = "F[n,c,points] ?[n,points] ?[n,points]..."

    def infer(self, g: Type, *rest: Type) -> Type:
        return g.with_shape((*g.shape[:2], self.size))

    def rule(self, g: Type, *rest: Type):
        self._taps_fit(rest[0].shape, rest)
        rules.size(self, "size", self.size)
        rules.allowed(self, all(t.dtype is g.dtype for t in rest[self.taps :]), "weights have the type of g")

    def bounds(self, g: Type, *rest: Type):
        return {1 + k: (self.size, 2, True) for k in range(self.taps)}

    def attributes(self, g, *rest):
        return (self.taps, self.run, self.size), ()

    def grad(self, h, g, *rest):
        offsets, weights = self._split(rest)
        by_weight = _several(TapDot(self.taps, self.run)(g, h, *offsets)) if weights else ()
        return TapSum(self.taps, self.run)(h, *rest), *(None for _ in offsets), *by_weight

    def composed(self, g, *rest):
        offsets, weights = self._split(rest)
        made = F.full((*g.shape[:2], self.size), 0, dtype=g.dtype)
        batch, channel = (F.Iota(g.shape, a, dtypes.int64)() for a in (0, 1))
        for k, offset in enumerate(offsets):
            given = g * F.unsqueeze(weights[k], 1) if weights else g
            given = F.where(F.unsqueeze(F.less(offset, 0), 1), constant(0, g.dtype), given)
            at = F.expand(F.unsqueeze(F.astype(F.maximum(offset, 0), dtypes.int64), 1), g.shape)
            made = F.Scatter("add")(made, given, batch, channel, at)
        return made


@register
class TapDot(_Taps):
    """TapSum's gradients by the weights: g (n, c, points), x, offsets -> (n, points) for each of them."""

    name = "tap_dot"
    batching = "first"
    routine = "tap_dot"
    only_on = "cpu"
    takes = "F[n,c,points] F[n,c,size] ?[n,points] ?[n,points]..."

    def infer(self, g: Type, x: Type, *offsets: Type):
        made = tuple(g.with_shape(offset.shape) for offset in offsets)
        return made if len(made) > 1 else made[0]

    def rule(self, g: Type, x: Type, *offsets: Type):
        self._taps_fit(offsets[0].shape, offsets)
        rules.allowed(self, len(offsets) == self.taps, f"{self.taps} taps, of {len(offsets)}")

    def bounds(self, g: Type, x: Type, *offsets: Type):
        return {2 + k: (x.shape[2], 2, True) for k in range(self.taps)}

    def attributes(self, g, x, *offsets):
        return (self.taps, self.run), ()

    def grad(self, h, g, x, *offsets):
        h = [F.full(o.shape, 0, dtype=g.dtype) if v is None else v for v, o in zip(_several(h), offsets, strict=True)]
        by_x = TapScatter(self.taps, self.run, x.shape[2])(g, *offsets, *h)
        return TapSum(self.taps, self.run)(x, *offsets, *h), by_x, *(None for _ in offsets)

    def composed(self, g, x, *offsets):
        made = [F.sum(g * _read(x, offset), 1) for offset in offsets]
        return tuple(made) if len(made) > 1 else made[0]


def _several(values) -> list:
    return list(values) if isinstance(values, (tuple, list)) else [values]
