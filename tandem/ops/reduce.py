"""Reductions."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import product
from tandem.ops.define import Op, op, register
from tandem.ops.prepare import cast, constant, full_expand, normalize_axes, show_shape, to_float


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

    def grad(self, g, x, *, out):
        if self.kind == "sum":
            return F.Expand(x.shape)(g)
        if self.kind in ("max", "min"):
            # Shared equally by all elements that attain the extremum.
            hit = cast(F.Equal()(x, full_expand(out, x.shape)), x.dtype)
            count = Reduce("sum", self.axes)(hit)
            return hit * full_expand(g / count, x.shape)
        if self.kind == "prod":
            return F.prod_grad(g, x, out, self.axes)
        return None


# -- functions


def reduce(x: Value, kind: str, axes: tuple[int, ...], keepdims: bool, dtype=None) -> Value:
    """Reduce, then drop the reduced axes unless keepdims."""
    result = Reduce(kind, axes, dtype)(x) if axes or kind in ("argmax", "argmin") else (x if dtype is None else cast(x, dtype))
    if keepdims or not axes:
        return result
    return F.Reshape(tuple(d for i, d in enumerate(x.shape) if i not in axes))(result)


def sum_dtype(dtype: dtypes.DType) -> dtypes.DType:
    """Small integers and booleans add up in 64 bits."""
    if dtype.kind in ("bool", "int"):
        return dtypes.int64
    return dtypes.uint64 if dtype.kind == "uint" else dtype


@op(name="sum")
def sum_(x: Tensor, axis=None, dtype=None, keepdims=False):
    """Sum over axes (all by default). Integers add up in 64 bits.

    x: (*s) -> (*s without axes)

    >>> td.sum(td.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    tensor([4., 6.])
    """
    target = dtypes.as_dtype(dtype) if dtype is not None else sum_dtype(x.dtype)
    axes = normalize_axes("sum", axis, x.ndim)
    if target.is_inexact or x.dtype.is_inexact:
        x = cast(x, target)
        return reduce(x, "sum", axes, keepdims)
    return reduce(x, "sum", axes, keepdims, target)


@op
def mean(x: Tensor, axis=None, dtype=None, keepdims=False):
    """Arithmetic mean over axes (all by default).

    >>> td.mean(td.tensor([1.0, 2.0, 6.0]))
    tensor(3.)
    """
    x = cast(x, dtypes.as_dtype(dtype)) if dtype is not None else to_float(x)
    axes = normalize_axes("mean", axis, x.ndim)
    count = product(x.shape[a] for a in axes)
    return reduce(x, "sum", axes, keepdims) / constant(count, x.dtype)


def _extremum(name: str, kind: str, x: Value, axis, keepdims: bool) -> Value:
    axes = normalize_axes(name, axis, x.ndim)
    if product(x.shape[a] for a in axes) == 0:
        raise ShapeError(name, f"there is no {kind} over zero elements: x is {show_shape(x.shape)}, axes {axes}")
    return reduce(x, kind, axes, keepdims)


@op
def amax(x: Tensor, axis=None, keepdims=False):
    """Largest element over axes (all by default); NaN wins. The gradient is shared equally among ties.

    >>> td.amax(td.tensor([[1.0, 5.0], [7.0, 2.0]]), axis=1)
    tensor([5., 7.])
    """
    return _extremum("max", "max", x, axis, keepdims)
