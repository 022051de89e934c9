"""Reductions."""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem import dtypes
from tandem.errors import AxisError, DTypeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import product
from tandem.ops import rules
from tandem.ops.define import Op, method, op, public, register
from tandem.ops.precision import widen
from tandem.ops.prepare import (
    cast,
    constant,
    follows_pytorch,
    full_expand,
    normalize_axes,
    normalize_axis,
    show_shape,
    to_float,
)


@register
class Reduce(Op):
    """Combines along `axes`, which stay with size 1.

    kind: sum, prod, max, min (NaN propagates), any, all, argmax, argmin (int64: first position in row-major order of the
    reduced axes; NaN counts as the extremum). 16-bit floats accumulate in float32; `dtype` is the type of accumulator and result
    where it differs from the input's (sum of int32 in int64). A sum of float32 in float64 is rounded to float32 in blocks, but not
    at the end: what divides it rounds once.
    """

    name = "reduce"
    batching = "axes"
    fuses = True
    kind: str
    axes: tuple
    dtype: dtypes.DType | None = None
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        shape = tuple(1 if i in self.axes else d for i, d in enumerate(x.shape))
        if x.dtype.is_complex and self.kind not in ("sum", "prod"):
            raise DTypeError(self.kind, f"x is {x.dtype}; complex numbers have no order", fix="take abs(x) first")
        if self.kind in ("argmax", "argmin"):
            return Type(dtypes.int64, shape)
        if self.kind in ("any", "all"):
            return Type(dtypes.bool_, shape)
        return Type(self.dtype or x.dtype, shape)

    def rule(self, x: Type):
        rules.one_of(self, "kind", self.kind, ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"))
        if self.dtype is not None:
            fits = self.dtype.is_complex == x.dtype.is_complex and self.kind in ("sum", "prod", "max", "min")
            rules.allowed(self, fits, f"{self.kind} of {x.dtype} in {self.dtype}")
        if self.kind in ("max", "min", "argmax", "argmin"):
            fits = all(x.shape[a] > 0 for a in self.axes)
            rules.need(self, fits, f"x is {x!r}; there is no {self.kind} of nothing")

    @property
    def holomorphic(self):
        return self.kind == "prod"

    def split_complex(self, x: Value) -> Value:
        """Sums of the parts; a product as the last of the running ones."""
        if self.kind == "sum":
            return F.Complex()(*(Reduce("sum", self.axes)(F.Part(k)(x)) for k in (0, 1)))
        line, _, _ = in_line(x, self.axes)
        shape = tuple(1 if i in self.axes else d for i, d in enumerate(x.shape))
        if line.shape[-1] == 0:
            return F.full(shape, 1, dtype=x.dtype)
        running = F.Cumulative(line.ndim - 1, "prod")(line)
        return F.Reshape(shape)(F.slice_axis(running, -1, line.shape[-1] - 1, 1))

    def grad(self, g, x, *, out):
        if self.kind == "sum":
            return F.Expand(x.shape)(cast(g, x.dtype))
        if self.kind in ("max", "min"):
            # Shared equally by all elements that attain the extremum.
            hit = F.Equal()(x, full_expand(out, x.shape))
            g = widen(g)
            share = cast(g / Reduce("sum", self.axes)(cast(hit, g.dtype)), x.dtype)
            return cast(hit, x.dtype) * full_expand(share, x.shape)
        if self.kind == "prod":
            return _prod_grad(g, x, self.axes)
        return None


def in_line(x: Value, axes: tuple[int, ...]) -> tuple[Value, tuple, tuple]:
    """(x with `axes` as one last axis, the order of axes for it, the shape in that order)."""
    order = tuple(i for i in range(x.ndim) if i not in axes) + axes
    moved = F.Permute(order)(x)
    count = product(x.shape[a] for a in axes)
    return F.Reshape((*moved.shape[: x.ndim - len(axes)], count))(moved), order, moved.shape


def _prod_grad(g, x: Value, axes: tuple[int, ...]) -> Value:
    """Each element's gradient is the product of all others. Dividing the product by the element would fail at zeros."""
    line, order, moved = in_line(widen(x), axes)
    others = F.cumulative.exclusive_product(line) * F.cumulative.exclusive_product(line, reverse=True)
    back = tuple(order.index(i) for i in range(x.ndim))
    return cast(F.Permute(back)(F.Reshape(moved)(others)) * full_expand(widen(g), x.shape), x.dtype)


# -- functions


def reduce(x: Value, kind: str, axes: tuple[int, ...], keepdims: bool, dtype=None) -> Value:
    """Reduce, then drop the reduced axes unless keepdims."""
    result = (
        Reduce(kind, axes, dtype)(x)
        if axes or kind in ("argmax", "argmin")
        else F.Copy()(x if dtype is None else cast(x, dtype))  # no view of x: who writes the result does not write x
    )
    if keepdims or not axes:
        return result
    return F.Reshape(tuple(d for i, d in enumerate(x.shape) if i not in axes))(result)


def sum_dtype(dtype: dtypes.DType) -> dtypes.DType:
    """Small integers and booleans add up in 64 bits: unsigned ones in uint64 by the standard, in int64 as PyTorch has it."""
    if dtype.kind in ("bool", "int"):
        return dtypes.int64
    if dtype.kind != "uint" or dtype is dtypes.uint64:
        return dtype
    return dtypes.int64 if follows_pytorch() else dtypes.uint64


@op(name="sum")
def sum_(x: Tensor, axis: Axes = None, keepdims=False, *, dtype=None):
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
def mean(x: Tensor, axis: Axes = None, keepdims=False, *, dtype=None):
    """Arithmetic mean over axes (all by default).

    >>> td.mean(td.tensor([1.0, 2.0, 6.0]))
    tensor(3.)
    """
    x = cast(x, dtypes.as_dtype(dtype)) if dtype is not None else to_float(x)
    axes = normalize_axes("mean", axis, x.ndim)
    wide = widen(x)
    count = product(x.shape[a] for a in axes)
    return cast(reduce(wide, "sum", axes, keepdims) / constant(count, wide.dtype), x.dtype)


@op
def prod(x: Tensor, axis=None, keepdims=False, *, dtype=None):
    """Product over axes (all by default). Integers multiply in 64 bits.

    >>> td.prod(td.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1)
    tensor([ 2., 12.])
    """
    target = dtypes.as_dtype(dtype) if dtype is not None else sum_dtype(x.dtype)
    axes = normalize_axes("prod", axis, x.ndim)
    if target.is_inexact or x.dtype.is_inexact:
        return reduce(cast(x, target), "prod", axes, keepdims)
    return reduce(x, "prod", axes, keepdims, target)


def _extremum(name: str, kind: str, x: Value, axis, keepdims: bool) -> Value:
    axes = normalize_axes(name, axis, x.ndim)
    if product(x.shape[a] for a in axes) == 0:
        raise AxisError(name, f"there is no {kind} over zero elements: x is {show_shape(x.shape)}, axes {axes}")
    return reduce(x, kind, axes, keepdims)


@op
def amax(x: Tensor, axis: Axes = None, keepdims=False):
    """Largest element over axes (all by default); NaN wins. The gradient is shared equally among ties.

    >>> td.amax(td.tensor([[1.0, 5.0], [7.0, 2.0]]), axis=1)
    tensor([5., 7.])
    """
    return _extremum("max", "max", x, axis, keepdims)


@op
def amin(x: Tensor, axis: Axes = None, keepdims=False):
    """Smallest element over axes (all by default); NaN wins. The gradient is shared equally among ties.

    >>> td.amin(td.tensor([[1.0, 5.0], [7.0, 2.0]]), axis=1)
    tensor([1., 2.])
    """
    return _extremum("min", "min", x, axis, keepdims)


class Range(NamedTuple):
    """What aminmax gives."""

    min: object
    max: object


@op(name="aminmax", hidden=True)
def _aminmax(x: Tensor, axis=None, keepdims=False):
    return _extremum("aminmax", "min", x, axis, keepdims), _extremum("aminmax", "max", x, axis, keepdims)


@public(method=True)
def aminmax(x: Tensor, *, axis=None, keepdims=False, dim=None, keepdim=False):
    """(min, max) over axes (all by default), in one pass.

    >>> td.aminmax(td.tensor([3, 1, 2]))
    Range(min=tensor(1), max=tensor(3))
    """
    return Range(*_aminmax(x, *_axis_arguments("aminmax", axis, keepdims, dim, keepdim)))


def _arg_extremum(kind: str, x: Value, axis, keepdims: bool) -> Value:
    if axis is not None and not isinstance(axis, int):
        raise ValueRangeError(kind, f"axis is {axis!r}; it must be one axis or None")
    axes = normalize_axes(kind, axis, x.ndim)
    if product(x.shape[a] for a in axes) == 0:
        raise AxisError(kind, f"there is no {kind[3:]} over zero elements: x is {show_shape(x.shape)}, axes {axes}")
    if not axes:
        return F.full((), 0, dtype=dtypes.int64)
    return reduce(x, kind, axes, keepdims)


@op
def argmax(x: Tensor, axis=None, keepdims=False):
    """Position of the largest element along an axis (in the flattened tensor by default); the first of ties; NaN wins.

    >>> td.argmax(td.tensor([[1, 5], [7, 2]]), axis=1)
    tensor([1, 0])
    """
    return _arg_extremum("argmax", x, axis, keepdims)


@op
def argmin(x: Tensor, axis=None, keepdims=False):
    """Position of the smallest element along an axis (in the flattened tensor by default); the first of ties; NaN wins.

    >>> td.argmin(td.tensor([[1, 5], [7, 2]]), axis=1)
    tensor([0, 1])
    """
    return _arg_extremum("argmin", x, axis, keepdims)


@op(name="any")
def any_(x: Tensor, axis=None, keepdims=False):
    """Whether any element over axes (all by default) is not zero.

    >>> td.any(td.tensor([[True, False], [False, False]]), axis=1)
    tensor([ True, False])
    """
    return reduce(cast(x, dtypes.bool_), "any", normalize_axes("any", axis, x.ndim), keepdims)


@op(name="all")
def all_(x: Tensor, axis=None, keepdims=False):
    """Whether all elements over axes (all by default) are not zero.

    >>> td.all(td.tensor([[True, False], [True, True]]), axis=1)
    tensor([False,  True])
    """
    return reduce(cast(x, dtypes.bool_), "all", normalize_axes("all", axis, x.ndim), keepdims)


@op
def count_nonzero(x: Tensor, axis: Axes = None, keepdims=False):
    """How many elements over axes (all by default) are not zero.

    >>> td.count_nonzero(td.tensor([[0, 5], [7, 2]]), axis=1)
    tensor([1, 2])
    """
    return F.sum(cast(x, dtypes.bool_), axis, keepdims=keepdims)


@op
def nansum(x: Tensor, axis: Axes = None, keepdims=False, *, dtype=None):
    """Sum over axes (all by default), where NaN counts as 0.

    >>> td.nansum(td.tensor([1.0, float("nan"), 2.0]))
    tensor(3.)
    """
    return F.sum(F.where(F.isnan(x), 0, x), axis, keepdims, dtype=dtype)


@op
def nanmean(x: Tensor, axis: Axes = None, keepdims=False, *, dtype=None):
    """Mean over axes (all by default) of the elements that are not NaN.

    >>> td.nanmean(td.tensor([1.0, float("nan"), 2.0]))
    tensor(1.5000)
    """
    x = cast(x, dtypes.as_dtype(dtype)) if dtype is not None else to_float(x)
    wide = widen(x)
    total = F.nansum(wide, axis, keepdims)
    return cast(total / F.sum(F.logical_not(F.isnan(wide)), axis, keepdims=keepdims), x.dtype)


# -- max and min: the standard's functions, and PyTorch's


def _axis_arguments(name: str, axis, keepdims, dim, keepdim):
    if dim is not None and axis is not None:
        raise TypeError(f"{name}() got both axis and dim")
    return (dim if axis is None else axis), bool(keepdims or keepdim)


def _is_operand(axis) -> bool:
    return hasattr(axis, "dtype") and hasattr(axis, "shape")


class Extremum(NamedTuple):
    """What x.max(axis) gives."""

    values: object
    indices: object


@public(name="max")
def max_(x: Tensor, dim=None, keepdim=False, *, axis=None, keepdims=False):
    """Largest element over axes (all by default). With `axis`, as the Array API has it, one tensor; with `dim`, or an axis by
    position, as PyTorch has it, (values, indices). td.max(x, y) is td.maximum(x, y).

    >>> td.max(td.tensor([[1.0, 5.0], [7.0, 2.0]]), axis=1)
    tensor([5., 7.])
    >>> values, indices = td.max(td.tensor([[1.0, 5.0], [7.0, 2.0]]), 1)
    >>> indices
    tensor([1, 0])
    """
    if dim is None:
        return amax(x, axis, bool(keepdims or keepdim))
    if _is_operand(dim):
        return F.maximum(x, dim)
    axis, keepdims = _axis_arguments("max", axis, keepdims, dim, keepdim)
    return Extremum(*_max_with_indices(x, axis, keepdims))


@public(name="min")
def min_(x: Tensor, dim=None, keepdim=False, *, axis=None, keepdims=False):
    """Smallest element over axes (all by default). With `axis`, as the Array API has it, one tensor; with `dim`, or an axis by
    position, as PyTorch has it, (values, indices). td.min(x, y) is td.minimum(x, y).

    >>> td.min(td.tensor([[1.0, 5.0], [7.0, 2.0]]), axis=1)
    tensor([1., 2.])
    >>> values, indices = td.min(td.tensor([[1.0, 5.0], [7.0, 2.0]]), 1)
    >>> indices
    tensor([0, 1])
    """
    if dim is None:
        return amin(x, axis, bool(keepdims or keepdim))
    if _is_operand(dim):
        return F.minimum(x, dim)
    axis, keepdims = _axis_arguments("min", axis, keepdims, dim, keepdim)
    return Extremum(*_min_with_indices(x, axis, keepdims))


def at_positions(x: Value, axis: int, index: Value) -> Value:
    """x along axis at `index`, which is in range and has as many axes as x: gather without the check."""
    indices = [index if a == axis else F.Iota(index.shape, a, dtypes.int64)() for a in range(x.ndim)]
    return F.Gather()(x, *indices) if x.ndim else F.Copy()(x)


def _with_indices(name: str, arg, x: Value, axis, keepdims: bool):
    axis = normalize_axis(name, axis, x.ndim)
    index = arg(x, axis, True) if x.ndim else arg(x)
    values = at_positions(x, axis, index)
    if keepdims or not x.ndim:
        return values, index
    return F.squeeze(values, axis), F.squeeze(index, axis)


@op(name="max", hidden=True)
def _max_with_indices(x: Tensor, axis, keepdims=False):
    return _with_indices("max", F.argmax, x, axis, keepdims)


@op(name="min", hidden=True)
def _min_with_indices(x: Tensor, axis, keepdims=False):
    return _with_indices("min", F.argmin, x, axis, keepdims)


@method(name="max")
def _max_method(x, axis=None, keepdims=False, *, dim=None, keepdim=False):
    """As in PyTorch: the largest element; with an axis, (values, indices) along it; with a tensor, maximum."""
    if _is_operand(axis):
        return F.maximum(x, axis)
    axis, keepdims = _axis_arguments("max", axis, keepdims, dim, keepdim)
    return amax(x, None, keepdims) if axis is None else Extremum(*_max_with_indices(x, axis, keepdims))


@method(name="min")
def _min_method(x, axis=None, keepdims=False, *, dim=None, keepdim=False):
    """As in PyTorch: the smallest element; with an axis, (values, indices) along it; with a tensor, minimum."""
    if _is_operand(axis):
        return F.minimum(x, axis)
    axis, keepdims = _axis_arguments("min", axis, keepdims, dim, keepdim)
    return amin(x, None, keepdims) if axis is None else Extremum(*_min_with_indices(x, axis, keepdims))
