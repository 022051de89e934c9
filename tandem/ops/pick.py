"""One element per row, chosen by an index: a load forward, a comparison backward, never a scatter."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.graph.ir import Type
from tandem.ops import rules
from tandem.ops.define import Composite, register
from tandem.ops.prepare import cast, constant, full_expand


@register
class Pick(Composite):
    """x at `index` along one axis; index has size 1 there and x's sizes elsewhere, and is in range."""

    name = "pick"
    batching = "axis"
    takes_complex = True
    holomorphic = False
    axis: int
    takes = "T[*s] i64[*i]"

    def infer(self, x: Type, index: Type) -> Type:
        return x.with_shape(index.shape)

    def rule(self, x: Type, index: Type):
        fits = x.ndim == index.ndim > 0 and all(
            m == (1 if i == self.axis else n) for i, (m, n) in enumerate(zip(index.shape, x.shape, strict=True))
        )
        rules.need(self, fits, f"x is {x!r}, and its index {index!r}; it must have size 1 along axis {self.axis}")

    def bounds(self, x: Type, index: Type):
        return {1: (x.shape[self.axis], self.axis)}

    def expand(self, x, index):
        positions = [index if a == self.axis else F.Iota(index.shape, a, dtypes.int64)() for a in range(x.ndim)]
        return F.Gather()(x, *positions)

    def grad(self, g, x, index):
        return Place(self.axis, x.shape[self.axis])(g, index), None


@register
class Place(Composite):
    """The transpose of Pick: zeros of `size` along the axis, but for x at `index`."""

    name = "place"
    batching = "axis"
    takes_complex = True
    holomorphic = False
    axis: int
    size: object  # Dim
    takes = "T[*s] i64[*s]"

    def infer(self, x: Type, index: Type) -> Type:
        return x.with_shape(x.shape[: self.axis] + (self.size,) + x.shape[self.axis + 1 :])

    def rule(self, x: Type, index: Type):
        rules.size(self, "size", self.size)
        rules.need(
            self, x.ndim > 0 and x.shape[self.axis] == 1, f"x is {x!r}; it must have size 1 along axis {self.axis}"
        )

    def bounds(self, x: Type, index: Type):
        return {1: (self.size, self.axis)}

    def expand(self, x, index):
        shape = self.infer(x.type, index.type).shape
        # The index is in range, so that half of the bits do where they can count that far; twice as many are compared at once.
        dtype = dtypes.int32 if type(self.size) is int and self.size < 2**31 else dtypes.int64
        here = F.Equal()(F.Iota(shape, self.axis, dtype)(), full_expand(cast(index, dtype), shape))
        return F.Where()(here, full_expand(x, shape), constant(0, x.dtype))

    def grad(self, g, x, index):
        return Pick(self.axis)(g, index), None
