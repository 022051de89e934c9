"""More of order along an axis, in PyTorch's spelling: mode, medians and quantiles without NaN, unique elements."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import ShapeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.ops.define import op, public
from tandem.ops.index import known_shares
from tandem.ops.precision import in_float32
from tandem.ops.prepare import cast, normalize_axis, show_shape, to_float
from tandem.ops.reduce import at_positions
from tandem.ops.sort import Ordered, Sort, SortValues


@op
def msort(x: Tensor):
    """x in ascending order along its first axis.

    >>> td.msort(td.tensor([[3, 1], [2, 4]]))
    tensor([[2, 1],
            [3, 4]])
    """
    return Sort(normalize_axis("msort", 0, x.ndim), False)(x)[0]


def _drop(axis: int, keepdims: bool, *values):
    return values if keepdims else tuple(F.squeeze(v, axis) for v in values)


@op(name="mode", hidden=True)
def _mode(x: Tensor, axis, keepdims):
    axis = normalize_axis("mode", axis, x.ndim)
    if x.ndim == 0:
        return F.Copy()(x), F.full((), 0, dtype=dtypes.int64)
    n = x.shape[axis]
    if n == 0:
        raise ShapeError("mode", f"there is no mode of zero elements: x is {show_shape(x.shape)}, axis {axis}")
    values, order = Sort(axis, False)(F.stop_gradient(x))
    place = F.Iota(x.shape, axis, dtypes.int64)()
    # In order, equal elements are runs; the first of the longest runs holds the smallest of the most frequent elements.
    changes = F.not_equal(F.slice_axis(values, axis, 1, n - 1), F.slice_axis(values, axis, 0, n - 1))
    ones = F.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), True, dtype=dtypes.bool_)
    starts = F.Cumulative(axis, "max")(F.where(F.concat([ones, changes], axis), place, 0))
    index = at_positions(order, axis, F.argmax(place - starts, axis, True))
    return _drop(axis, keepdims, at_positions(x, axis, index), index)


@public(method=True)
def mode(x: Tensor, axis=-1, keepdims=False):
    """(values, indices) of the most frequent element along an axis, the smallest of several; the index is that of its last one.

    >>> td.mode(td.tensor([3, 1, 3, 2])).values
    tensor(3)
    """
    return Ordered(*_mode(x, axis, bool(keepdims)))


@op(name="nanmedian", hidden=True)
def _nanmedian(x: Tensor, axis, keepdims):
    axis = normalize_axis("nanmedian", axis, x.ndim)
    if x.ndim == 0:
        return F.Copy()(x), F.full((), 0, dtype=dtypes.int64)
    if x.shape[axis] == 0:
        raise ShapeError("nanmedian", f"there is no median of zero elements: x is {show_shape(x.shape)}, axis {axis}")
    order = Sort(axis, False)(F.stop_gradient(x))[1]  # NaN comes last
    count = F.sum(F.logical_not(F.isnan(x)), axis, keepdims=True)
    index = at_positions(order, axis, F.floor_divide(F.maximum(count - 1, 0), 2))
    return _drop(axis, keepdims, at_positions(x, axis, index), index)


@public(method=True)
def nanmedian(x: Tensor, axis=None, keepdims=False):
    """The middle element in order of those that are not NaN, the lower of two. With an axis, (values, indices) along it.

    >>> td.nanmedian(td.tensor([5.0, float("nan"), 3.0, 2.0]))
    tensor(3.)
    """
    if axis is None:
        return _nanmedian(F.reshape(x, (-1,)), 0, False)[0]
    return Ordered(*_nanmedian(x, axis, bool(keepdims)))


_INTERPOLATION = ("linear", "lower", "higher", "nearest", "midpoint")


def _quantile(name: str, x: Value, q, axis, keepdims, interpolation: str, ignore_nan: bool) -> Value:
    if interpolation not in _INTERPOLATION:
        raise ValueRangeError(
            name, f"interpolation is {interpolation!r}; it must be one of {', '.join(_INTERPOLATION)}"
        )
    x = to_float(x)
    q = cast(q, x.dtype)
    if q.ndim > 1:
        raise ShapeError(name, f"q is {show_shape(q.shape)}; it must be a number or have one axis")
    q = known_shares(q)
    if axis is None:
        flat = F.Reshape((x.type.numel,))(x)
        shape = (1,) * x.ndim if keepdims else ()
    else:
        axis = normalize_axis(name, axis, x.ndim)
        rest = tuple(i for i in range(x.ndim) if i != axis)
        flat = F.Permute((*rest, axis))(x) if x.ndim else F.Reshape((1,))(x)
        shape = tuple(1 if i == axis else d for i, d in enumerate(x.shape) if keepdims or i != axis)
    size = flat.shape[-1]
    if size == 0:
        raise ShapeError(name, f"there is no quantile of zero elements: x is {show_shape(x.shape)}")
    ordered = SortValues(flat.ndim - 1, False)(flat)
    lead = tuple(range(flat.ndim - 1))
    first = F.Permute((flat.ndim - 1, *lead))(ordered)
    count = q.type.numel
    share = F.Reshape((count,) + (1,) * (flat.ndim - 1))(q)
    nan = F.isnan(first)
    if ignore_nan:  # sorted last, so that they only shorten the line
        last = F.maximum(F.sum(F.logical_not(nan), 0, keepdims=True) - 1, 0)
    else:
        last = F.full((1,) * flat.ndim, size - 1, dtype=dtypes.int64)
    place = share * cast(last, x.dtype)
    place = F.clip(place, 0, cast(last, x.dtype))
    if interpolation == "nearest":
        place = F.round(place)
    low = cast(F.floor(place), dtypes.int64)
    high = F.minimum(cast(F.ceil(place), dtypes.int64), last)
    weight = place - cast(low, x.dtype)

    def at(position):
        wanted = F.expand(position, (count, *first.shape[1:]))
        return at_positions(first, 0, wanted)

    if interpolation in ("lower", "nearest"):
        out = at(low)
    elif interpolation == "higher":
        out = at(high)
    elif interpolation == "midpoint":
        out = (at(low) + at(high)) * 0.5
    else:
        out = F.lerp(at(low), at(high), weight)
    if not ignore_nan and x.dtype.is_floating:  # a NaN, sorted last, makes all NaN
        end = F.slice_axis(first, 0, size - 1, 1)
        out = F.where(F.isnan(end), end, out)
    return F.Reshape((*q.shape, *shape))(out)


@op
@in_float32
def quantile(x: Tensor, q: Tensor, axis=None, keepdims=False, *, interpolation="linear"):
    """The value below which a share q of the elements lies. Between two neighbours in order, interpolation is "linear", "lower",
    "higher", "nearest" or "midpoint".

    x: (*s), q: () or (k) -> (k, *s without axis)

    >>> td.quantile(td.tensor([1.0, 2.0, 4.0]), 0.75)
    tensor(3.)
    """
    return _quantile("quantile", x, q, axis, keepdims, interpolation, False)


@op
@in_float32
def nanquantile(x: Tensor, q: Tensor, axis=None, keepdims=False, *, interpolation="linear"):
    """quantile of the elements that are not NaN; NaN where there are none.

    >>> td.nanquantile(td.tensor([1.0, float("nan"), 3.0]), 0.5)
    tensor(2.)
    """
    return _quantile("nanquantile", x, q, axis, keepdims, interpolation, True)


# -- unique elements: how many depends on the data, so these run eagerly


@op(internal=True)
def run_starts(rows: Tensor):
    """Whether each row (of a 2-d tensor) differs from the one before it; the first does."""
    n = rows.shape[0]
    if n == 0:
        return F.full((0,), True, dtype=dtypes.bool_)
    changes = F.not_equal(F.slice_axis(rows, 0, 1, n - 1), F.slice_axis(rows, 0, 0, n - 1))
    changes = F.Reshape((n - 1,))(changes) if rows.shape[1] == 1 else F.any(changes, 1)
    return F.concat([F.full((1,), True, dtype=dtypes.bool_), changes], 0)


@op(internal=True)
def row_order(rows: Tensor, order: Tensor, column: Int):
    """order, in which rows are sorted by the columns after `column`, sorted by that column too."""
    keys = F.Gather()(F.Reshape((rows.shape[0],))(F.slice_axis(rows, 1, column, 1)), order)
    return F.Gather()(order, Sort(0, False)(keys)[1])


@op(internal=True)
def run_numbers(starts: Tensor, order: Tensor):
    """The number of the run of each element, in the place it came from."""
    numbers = F.cumsum(cast(starts, dtypes.int64), 0) - 1
    return F.Scatter("set")(F.full(order.shape, 0, dtype=dtypes.int64), numbers, order)


def _unique(x, rows, order, axis, return_inverse, return_counts):
    """Results of unique from rows in `order`: of elements if axis is None, of slices along it otherwise."""
    inside = rows if order is None else F.index_select(rows, 0, order)
    starts = F.run_starts(inside)
    first = starts.nonzero()[:, 0]
    n = rows.shape[0]
    flat = F.reshape(inside, (-1,)) if axis is None else inside
    chosen = flat if first.shape[0] == n else F.index_select(flat, 0, first)
    if axis is None:
        values = F.reshape(chosen, (-1,))
    else:
        moved = F.moveaxis(x, axis, 0)
        values = F.moveaxis(F.reshape(chosen, (chosen.shape[0], *moved.shape[1:])), 0, axis)
    results = [values]
    if return_inverse:
        numbers = F.run_numbers(starts, F.arange(n) if order is None else order)
        results.append(F.reshape(numbers, x.shape) if axis is None else numbers)
    if return_counts:
        results.append(F.diff(first, append=F.full((1,), n, dtype=dtypes.int64)))
    return results[0] if len(results) == 1 else tuple(results)


def _rows(name: str, x, axis):
    x = x.detach()
    if axis is None:
        return F.reshape(x, (-1, 1))
    axis = normalize_axis(name, axis, x.ndim)
    moved = F.moveaxis(x, axis, 0)
    return F.reshape(moved, (moved.shape[0], moved.size // max(moved.shape[0], 1)))


def _unique_elements(x, return_inverse, return_counts):
    if not return_inverse:
        return tuple(F.unique_counts(x)) if return_counts else F.unique_values(x)
    if not return_counts:
        return tuple(F.unique_inverse(x))
    values, _, inverse, counts = F.unique_all(x)
    return values, inverse, counts


@public(method=True)
def unique(x: Tensor, sorted=True, return_inverse=False, return_counts=False, axis=None):
    """The different elements of x in ascending order, or the different slices along an axis; every NaN is one of its own. With
    return_inverse also which of them each element is, with return_counts also how often each occurs.

    >>> td.unique(td.tensor([3, 1, 3]), return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """
    if axis is None:
        return _unique_elements(x, return_inverse, return_counts)
    rows = _rows("unique", x, axis)
    order = F.argsort(rows[:, -1]) if rows.shape[1] else F.arange(rows.shape[0])
    for column in reversed(range(rows.shape[1] - 1)):
        order = F.row_order(rows, order, column)
    return _unique(x, rows, order, normalize_axis("unique", axis, x.ndim), return_inverse, return_counts)


@public(method=True)
def unique_consecutive(x: Tensor, return_inverse=False, return_counts=False, axis=None):
    """x without elements (or slices along an axis) that are equal to the one before. See unique.

    >>> td.unique_consecutive(td.tensor([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    axis = None if axis is None else normalize_axis("unique_consecutive", axis, x.ndim)
    if axis is None and not isinstance(x, Value):
        runs = _runtime.unique_consecutive(F.reshape(x.detach(), (-1,)), bool(return_inverse), bool(return_counts))
        if runs is not None:
            values, numbers, counts = runs
            results = [values]
            if return_inverse:
                results.append(F.reshape(numbers, x.shape))
            if return_counts:
                results.append(counts)
            return results[0] if len(results) == 1 else tuple(results)
    return _unique(x, _rows("unique_consecutive", x, axis), None, axis, return_inverse, return_counts)
