"""Reductions."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.graph.ir import Type
from tandem.ops.define import Op, register


@register
class Reduce(Op):
    """Combines along `axes`, which stay with size 1.

    kind: sum, prod, max, min (NaN propagates), any, all, argmax, argmin (int64: first position in row-major order of the
    reduced axes; NaN counts as the extremum). 16-bit floats accumulate in float32; `dtype` is the type of accumulator and result
    where it differs from the input's (sum of int32 in int64).
    """

    name = "reduce"
    kind: str
    axes: tuple
    dtype: dtypes.DType | None = None

    def infer(self, x: Type) -> Type:
        shape = tuple(1 if i in self.axes else d for i, d in enumerate(x.shape))
        if self.kind in ("argmax", "argmin"):
            return Type(dtypes.int64, shape)
        if self.kind in ("any", "all"):
            return Type(dtypes.bool_, shape)
        return Type(self.dtype or x.dtype, shape)
