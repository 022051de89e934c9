"""Which different elements there are. How many depends on the data, so these run eagerly: the number is counted first."""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.graph.ir import Value
from tandem.ops.define import op, public
from tandem.ops.prepare import cast, constant
from tandem.ops.sort import Sort, SortValues


class UniqueAll(NamedTuple):
    """Different elements, where each occurs first, which of them each element of x is, and how often each occurs."""

    values: object
    indices: object
    inverse_indices: object
    counts: object


class UniqueCounts(NamedTuple):
    """Different elements and how often each occurs."""

    values: object
    counts: object


class UniqueInverse(NamedTuple):
    """Different elements and which of them each element of x is."""

    values: object
    inverse_indices: object


@op(internal=True)
def in_order(x: Tensor):
    """(flat x in order, positions in x, whether an element differs from the one before it). Equal elements keep their order."""
    flat = F.stop_gradient(F.Reshape((x.type.numel,))(x))
    if x.dtype.is_complex:
        order = Sort(0, False)(F.imag(flat))[1]
        order = F.take(order, Sort(0, False)(F.take(F.real(flat), order))[1])
        values = F.take(flat, order)
    else:
        values, order = Sort(0, False)(flat)
    return values, order, _differs(values)


def _differs(values: Value) -> Value:
    """Whether an element differs from the one before it; the first one does."""
    n = values.shape[0]
    if n == 0:
        return F.full((0,), False, dtype=dtypes.bool_)
    changes = F.not_equal(F.slice_axis(values, 0, 1, n - 1), F.slice_axis(values, 0, 0, n - 1))
    return F.concat([F.full((1,), True, dtype=dtypes.bool_), changes])


@op(internal=True)
def group_sizes(starts: Tensor, total: Int):
    """How many elements each group has, from where groups start and how many elements there are."""
    return F.diff(F.concat([starts, F.full((1,), total, dtype=dtypes.int64)]))


@op(internal=True)
def group_numbers(first: Tensor, order: Tensor):
    """The number of the group of every element in its old place, from where groups start in order."""
    numbers = F.cumsum(F.astype(first, dtypes.int64), 0) - 1
    return F.Scatter("set")(F.zeros_like(order), numbers, order)


def _groups(x):
    """(values, order, first, starts): elements in order, their old places, and where in that order each different one starts."""
    values, order, first = F.in_order(x)
    return values, order, first, F.nonzero(first)[0]


@public
def unique_all(x: Tensor):
    """The different elements of x in ascending order, where each occurs first in flattened x, which of them each element of x
    is, and how often each occurs. Every NaN is different.

    >>> td.unique_all(td.tensor([3, 1, 3])).counts
    tensor([1, 2])
    """
    values, order, first, starts = _groups(x)
    inverse = F.reshape(F.group_numbers(first, order), x.shape)
    return UniqueAll(F.take(values, starts), F.take(order, starts), inverse, F.group_sizes(starts, x.numel()))


# Integers that lie close together are counted instead of sorted.


def _counted(x):
    """(smallest element, how often it and those after it occur), or None if counting would take more room than x itself."""
    if not x.dtype.is_integer or x.dtype is dtypes.uint64 or x.numel() == 0:
        return None
    low, high = (int(v) for v in F.aminmax(x))
    if high - low > 2 * x.numel() + 1000:
        return None
    return low, F.count_integers(x, low, high - low + 1)


def _runs(x, counts: bool):
    """What _runtime.unique_consecutive finds among the elements in order, or None if it cannot look there."""
    if isinstance(x, Value) or x.dtype.is_complex:
        return None
    return _runtime.unique_consecutive(F.flat_in_order(x.detach()), False, counts)


@op(internal=True)
def flat_in_order(x: Tensor):
    """The elements of x in order."""
    return SortValues(0, False)(F.Reshape((x.type.numel,))(x))


@op(internal=True)
def shifted(x: Tensor, low: Int, dtype):
    """x + low as dtype."""
    return cast(x + constant(low, dtypes.int64), dtype)


@op(internal=True)
def places_of(x: Tensor, low: Int, counts: Tensor):
    """Which of the numbers that occur each element of x is, from how often low and those after it occur."""
    places = F.cumsum(F.astype(F.not_equal(counts, 0), dtypes.int64), 0) - 1
    return F.Gather()(places, cast(x, dtypes.int64) - constant(low, dtypes.int64))


@public
def unique_counts(x: Tensor):
    """The different elements of x in ascending order and how often each occurs. Every NaN is different.

    >>> td.unique_counts(td.tensor([3, 1, 3])).values
    tensor([1, 3])
    """
    counted = _counted(x)
    if counted is not None:
        present = F.nonzero(counted[1])[0]
        return UniqueCounts(F.shifted(present, counted[0], x.dtype), F.take(counted[1], present))
    runs = _runs(x, True)
    if runs is not None:
        return UniqueCounts(runs[0], runs[2])
    values, first = F.values_in_order(x)
    starts = F.nonzero(first)[0]
    return UniqueCounts(F.take(values, starts), F.group_sizes(starts, x.numel()))


@public
def unique_inverse(x: Tensor):
    """The different elements of x in ascending order and which of them each element of x is. Every NaN is different.

    >>> td.unique_inverse(td.tensor([3, 1, 3])).inverse_indices
    tensor([1, 0, 1])
    """
    counted = _counted(x)
    if counted is not None:
        low, counts = counted
        values = F.shifted(F.nonzero(counts)[0], low, x.dtype)
        return UniqueInverse(values, F.places_of(x, low, counts))
    values, order, first, starts = _groups(x)
    return UniqueInverse(F.take(values, starts), F.reshape(F.group_numbers(first, order), x.shape))


@op(internal=True)
def values_in_order(x: Tensor):
    """(flat x in order, whether an element differs from the one before it)."""
    if x.dtype.is_complex:
        values, _, first = F.in_order(x)
        return values, first
    values = SortValues(0, False)(F.stop_gradient(F.Reshape((x.type.numel,))(x)))
    return values, _differs(values)


@public
def unique_values(x: Tensor):
    """The different elements of x in ascending order. Every NaN is different.

    >>> td.unique_values(td.tensor([3, 1, 3]))
    tensor([1, 3])
    """
    counted = _counted(x)
    if counted is not None:
        return F.shifted(F.nonzero(counted[1])[0], counted[0], x.dtype)
    runs = _runs(x, False)
    if runs is not None:
        return runs[0]
    values, first = F.values_in_order(x)
    return values[first]
