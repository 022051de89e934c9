"""Writing at computed positions: scatter, index_add and their relatives. Each gives a new tensor; the form with a trailing
underscore writes into its first argument. Indices are checked before anything is written."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.graph.symbolic import product
from tandem.ops.define import inplace, op, public
from tandem.ops.getitem import put as put_at
from tandem.ops.index import Gather, Scatter, along, checked, scatter_in
from tandem.ops.movement import Reshape, take_slice
from tandem.ops.precision import widen
from tandem.ops.prepare import (
    as_dtype_value,
    assigned,
    broadcast_shapes,
    cast,
    constant,
    full_expand,
    normalize_axis,
    show_shape,
)  # fmt: skip

_MODES = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


def _scatter_along(name: str, x: Value, axis: int, index: Value, source, mode: str) -> Value:
    return scatter_in(mode, *_prepared(name, x, axis, index, source))


def _prepared(name: str, x: Value, axis: int, index: Value, source) -> tuple[Value, ...]:
    """Operands of Scatter: x, source cut to the shape of index, an index tensor for every axis. 0-d operands
    count as 1-d."""
    axis = normalize_axis(name, axis, x.ndim)
    if isinstance(source, Value) and source.ndim > 0 and source.dtype is not x.dtype:
        raise DTypeError(
            name,
            f"x is {x.dtype} and source {source.dtype}; they must have the same dtype",
            fix=f"source.to(td.{x.dtype})",
        )
    source = as_dtype_value(source, x.dtype)
    if x.ndim == 0:
        x = Reshape((1,))(x)
        index = Reshape((1,))(index) if index.ndim == 0 else index
        source = Reshape((1,))(source) if source.ndim == 0 else source
    indices, shape = along(name, x, index, axis)
    for a in range(x.ndim):
        if a != axis and shape[a] > x.shape[a]:
            raise ShapeError(name, f"index {show_shape(shape)} is larger than x {show_shape(x.shape)} on axis {a}")
    if source.ndim == 0:
        return x, full_expand(source, shape), *indices
    if source.ndim != index.ndim:
        raise ShapeError(
            name,
            f"source is {show_shape(source.shape)} and index is {show_shape(shape)}; both need the same number of axes",
        )
    for a in range(x.ndim):
        if source.shape[a] < shape[a]:
            raise ShapeError(
                name, f"source {show_shape(source.shape)} is smaller than index {show_shape(shape)} on axis {a}"
            )
    if any(s != d for s, d in zip(source.shape, shape, strict=True)):
        source = take_slice(source, {a: (0, 1, shape[a]) for a in range(x.ndim)})
    return x, source, *indices


@op
def scatter(x: Tensor, axis, index: Tensor, source: Written, *, reduce=None):
    """x with x[index[i, j], j] = source[i, j] for axis 0, and so on; source may be a number. Of several for one place the last
    counts; reduce "add" or "multiply" combines them, and what was there, instead.

    >>> td.scatter(td.zeros(3), 0, td.tensor([2]), td.tensor([5.0]))
    tensor([0., 0., 5.])
    """
    if reduce is not None and reduce not in ("add", "multiply"):
        raise ValueRangeError(
            "scatter", f"reduce is {reduce!r}; it must be 'add', 'multiply' or None", fix="use scatter_reduce"
        )
    return Reshape(x.shape)(
        _scatter_along("scatter", x, axis, index, source, "set" if reduce is None else _MODES[reduce])
    )


@op
def scatter_add(x: Tensor, axis, index: Tensor, source: Tensor):
    """Like scatter, but adds.

    >>> td.scatter_add(td.zeros(2), 0, td.tensor([1, 1]), td.tensor([5.0, 1.0]))
    tensor([0., 6.])
    """
    return Reshape(x.shape)(_scatter_along("scatter_add", x, axis, index, source, "add"))


@op
def scatter_reduce(x: Tensor, axis, index: Tensor, source: Tensor, reduce, *, include_self=True):
    """Like scatter, but combines all sources of a place: "sum", "prod", "mean", "amax" or "amin", with what x has there or not.

    >>> td.scatter_reduce(td.tensor([1.0, 2.0]), 0, td.tensor([0, 0]), td.tensor([5.0, 6.0]), "mean")
    tensor([4., 2.])
    """
    return Reshape(x.shape)(
        _reduced("scatter_reduce", reduce, include_self, *_prepared("scatter_reduce", x, axis, index, source))
    )


def _reduced(name: str, reduce: str, include_self: bool, x: Value, source: Value, *indices: Value) -> Value:
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise ValueRangeError(name, f"reduce is {reduce!r}; it must be 'sum', 'prod', 'mean', 'amax' or 'amin'")
    ones = full_expand(constant(1, dtypes.int64), source.shape)
    count = Scatter("add")(F.full(x.shape, int(include_self), dtype=dtypes.int64), ones, *indices)
    base = x
    if not include_self:
        untouched = F.Equal()(count, constant(0, dtypes.int64))
        base = F.Where()(untouched, x, _neutral(reduce, x.dtype))
    if reduce != "mean":
        return scatter_in(_MODES[reduce], base, source, *indices)
    total = Scatter("add")(widen(base), widen(source), *indices)
    count = F.maximum(count, 1)
    made = F.divide(total, cast(count, total.dtype)) if x.dtype.is_inexact else F.floor_divide(total, count)
    return cast(made, x.dtype)


def _neutral(reduce: str, dtype: dtypes.DType) -> Value:
    if reduce in ("sum", "mean"):
        return constant(0, dtype)
    if reduce == "prod":
        return constant(1, dtype)
    if dtype.kind == "bool":
        return constant(reduce == "amin", dtype)
    if dtype.is_inexact:
        return constant(float("-inf") if reduce == "amax" else float("inf"), dtype)
    bits = dtype.itemsize * 8
    low, high = (0, 2**bits - 1) if dtype.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return constant(low if reduce == "amax" else high, dtype)


# -- whole slices along one axis


def _slices(name: str, x: Value, axis: int, index: Value, source) -> tuple[int, Value]:
    axis = normalize_axis(name, axis, x.ndim)
    if index.ndim > 1:
        raise ShapeError(name, f"index is {show_shape(index.shape)} and must be 1-d")
    if isinstance(source, Value) and source.ndim:
        expected = x.shape[:axis] + (index.type.numel,) + x.shape[axis + 1 :]
        if source.ndim != x.ndim or any(a != b for a, b in zip(source.shape, expected, strict=True)):
            raise ShapeError(
                name,
                f"source is {show_shape(source.shape)}; for x of shape {show_shape(x.shape)} and this index it "
                f"must be {show_shape(expected)}",
            )
    return axis, Reshape((index.type.numel,))(index)


def _write_slices(name: str, x: Value, axis: int, index: Value, source, mode: str) -> Value:
    if x.ndim == 0:
        return Reshape(())(_write_slices(name, Reshape((1,))(x), axis, index, source, mode))
    axis, index = _slices(name, x, axis, index, source)
    return F.scatter_at(x, [index], (axis,), source, mode)


@op
def index_add(x: Tensor, axis, index: Tensor, source: Tensor, *, alpha: Written | None = None):
    """x with slices of source (times alpha) added at the positions that a 1-d index gives along axis.

    >>> td.index_add(td.zeros(3), 0, td.tensor([0, 0]), td.tensor([1.0, 2.0]))
    tensor([3., 0., 0.])
    """
    if alpha is not None:
        source = F.multiply(source, alpha)
    return _write_slices("index_add", x, axis, index, source, "add")


@op
def index_copy(x: Tensor, axis, index: Tensor, source: Tensor):
    """x with slices of source put at the positions that a 1-d index gives along axis.

    >>> td.index_copy(td.zeros(3), 0, td.tensor([2, 0]), td.tensor([1.0, 2.0]))
    tensor([2., 0., 1.])
    """
    return _write_slices("index_copy", x, axis, index, source, "set")


@op
def index_fill(x: Tensor, axis, index: Tensor, value: Written):
    """x with one value in the slices that a 1-d index names along axis.

    >>> td.index_fill(td.zeros(3), 0, td.tensor([2, 0]), 7)
    tensor([7., 0., 7.])
    """
    if isinstance(value, Value) and value.ndim:
        raise ShapeError("index_fill", f"value is {show_shape(value.shape)} and must be 0-d")
    value = assigned("index_fill", value, x.dtype)
    return _write_slices("index_fill", x, axis, index, value, "set")


@op
def index_reduce(x: Tensor, axis, index: Tensor, source: Tensor, reduce, *, include_self=True):
    """x with slices of source combined ("prod", "mean", "amax", "amin", "sum") at the positions that a 1-d index gives along axis.

    >>> td.index_reduce(td.ones(2), 0, td.tensor([0, 0]), td.tensor([3.0, 2.0]), "prod")
    tensor([6., 1.])
    """
    if x.ndim == 0:
        source = Reshape((1,))(source) if isinstance(source, Value) and source.ndim == 0 else source
        made = F.index_reduce(Reshape((1,))(x), axis, index, source, reduce, include_self=include_self)
        return Reshape(())(made)
    axis, index = _slices("index_reduce", x, axis, index, source)
    shape = tuple(index.shape[0] if a == axis else 1 for a in range(x.ndim))
    source = full_expand(as_dtype_value(source, x.dtype), x.shape[:axis] + index.shape + x.shape[axis + 1 :])
    along_axis = full_expand(Reshape(shape)(index), source.shape)
    return _reduced("index_reduce", reduce, include_self, *_prepared("index_reduce", x, axis, along_axis, source))


# -- any positions


@public(name="index_put", method=True)
def index_put(x: Tensor, indices, values, accumulate=False):
    """x with values put at x[indices], as x[indices] = values does; accumulate adds them, also where positions repeat.

    >>> td.index_put(td.zeros(3), (td.tensor([0, 0]),), td.tensor([1.0, 2.0]), accumulate=True)
    tensor([3., 0., 0.])
    """
    return index_put_(F.clone(x), indices, values, accumulate)


@public(name="index_put_", method=True)
def index_put_(x: Tensor, indices, values, accumulate=False):
    """In-place form of `index_put`."""
    if not isinstance(indices, (tuple, list)):
        raise DTypeError("index_put", f"indices is a {type(indices).__name__}; it must be a tuple of index tensors")
    put_at(x, tuple(slice(None) if i is None else i for i in indices), values, "add" if accumulate else "set")
    return x


@op
def put(x: Tensor, index: Tensor, source: Written, accumulate=False):
    """x with source put (or added) at positions that count x flat, in row-major order.

    >>> td.put(td.zeros((2, 2)), td.tensor([3, 0]), td.tensor([5.0, 6.0]))
    tensor([[6., 0.],
            [0., 5.]])
    """
    flat = Reshape((x.type.numel,))(x)
    source = as_dtype_value(source, x.dtype)
    if source.ndim and any(a != b for a, b in zip((source.type.numel,), (index.type.numel,), strict=True)):
        raise ShapeError(
            "put",
            f"source is {show_shape(source.shape)} and index is {show_shape(index.shape)}; both need as many elements",
        )
    if source.ndim:
        source = Reshape(index.shape)(source)
    return Reshape(x.shape)(F.scatter_at(flat, [index], (0,), source, "add" if accumulate else "set"))


@op
def put_along_axis(x: Tensor, index: Tensor, values: Tensor, axis=-1):
    """scatter with index and values broadcast to x on the other axes: the converse of take_along_axis.

    >>> td.put_along_axis(td.zeros((2, 2)), td.tensor([[1], [0]]), 5.0, axis=1)
    tensor([[0., 5.],
            [5., 0.]])
    """
    axis = normalize_axis("put_along_axis", axis, x.ndim)
    if index.ndim != x.ndim:
        raise ShapeError(
            "put_along_axis",
            f"x is {show_shape(x.shape)} and index is {show_shape(index.shape)}; both need the same number of axes",
        )
    shape = broadcast_shapes("put_along_axis", *(s[:axis] + (1,) + s[axis + 1 :] for s in (x.shape, index.shape)))
    if any(a != b for i, (a, b) in enumerate(zip(shape, x.shape, strict=True)) if i != axis):
        raise ShapeError(
            "put_along_axis", f"index {show_shape(index.shape)} does not broadcast to x {show_shape(x.shape)}"
        )
    index = full_expand(index, shape[:axis] + (index.shape[axis],) + shape[axis + 1 :])
    values = as_dtype_value(values, x.dtype)
    if broadcast_shapes("put_along_axis", values.shape, index.shape) != index.shape:
        raise ShapeError(
            "put_along_axis", f"values {show_shape(values.shape)} do not broadcast to index {show_shape(index.shape)}"
        )
    return F.scatter(x, axis, index, full_expand(values, index.shape))


@op
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor):
    """x with the places where mask holds filled from source, in row-major order; mask and x broadcast.

    >>> td.masked_scatter(td.zeros(3), td.tensor([True, False, True]), td.tensor([7.0, 8.0]))
    tensor([7., 0., 8.])
    """
    if mask.dtype.kind != "bool":
        raise DTypeError("masked_scatter", f"mask is {mask.dtype}; it must be boolean")
    shape = broadcast_shapes("masked_scatter", mask.shape, x.shape)
    mask, x = full_expand(mask, shape), full_expand(x, shape)
    flat = Reshape((product(x.shape),))(cast(mask, dtypes.int64))
    number = F.cumsum(flat, 0) - 1
    source = as_dtype_value(source, x.dtype)
    source = Reshape((source.type.numel,))(source)
    if x.type.numel == 0:
        return F.Copy()(x)
    # Places outside the mask read element 0 and drop it. Checking all of them tells when source is too short.
    number = Reshape(x.shape)(F.where(F.Equal()(flat, constant(1, dtypes.int64)), number, 0))
    if source.shape[0] == 0:
        source = F.full((1,), 0, dtype=x.dtype)
        number = number + cast(mask, dtypes.int64)
    taken = Gather()(source, checked(number, source.shape[0], 0, "masked_scatter"))
    return F.Where()(mask, taken, x)


@public(method=True)
def select_scatter(x: Tensor, source: Tensor, axis, index):
    """x with source in place of x.select(axis, index).

    >>> td.select_scatter(td.zeros((2, 2)), td.ones(2), 0, 1)
    tensor([[0., 0.],
            [1., 1.]])
    """
    result = F.clone(x)
    _replace("select_scatter", F.select(result, axis, index), source)
    return result


@public(method=True)
def slice_scatter(x: Tensor, source: Tensor, axis=0, start=None, end=None, step=1):
    """x with source in place of the slice start:end:step of an axis.

    >>> td.slice_scatter(td.zeros(4), td.ones(2), 0, 1, 3)
    tensor([0., 1., 1., 0.])
    """
    result = F.clone(x)
    axis = normalize_axis("slice_scatter", axis, x.ndim)
    _replace("slice_scatter", result[(slice(None),) * axis + (slice(start, end, step),)], source)
    return result


def _replace(name: str, view, source):
    if tuple(source.shape) != tuple(view.shape):
        raise ShapeError(name, f"source is {show_shape(source.shape)}; what it replaces is {show_shape(view.shape)}")
    F.copy_(view, source)


for _function in (
    scatter,
    scatter_add,
    scatter_reduce,
    index_add,
    index_copy,
    index_fill,
    index_reduce,
    put,
    masked_scatter,
):
    inplace(_function)
