"""Which different elements there are. How many depends on the data, so these run eagerly: the number is counted first."""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem import dtypes
from tandem.ops.define import op, public
from tandem.ops.sort import Sort


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
    if values.shape[0] == 0:
        return values, order, F.full((0,), False, dtype=dtypes.bool_)
    changes = F.not_equal(
        F.slice_axis(values, 0, 1, values.shape[0] - 1), F.slice_axis(values, 0, 0, values.shape[0] - 1)
    )
    return values, order, F.concat([F.full((1,), True, dtype=dtypes.bool_), changes])


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
    return UniqueAll(F.take(values, starts), F.take(order, starts), inverse, F.group_sizes(starts, x.size))


@public
def unique_counts(x: Tensor):
    """The different elements of x in ascending order and how often each occurs. Every NaN is different.

    >>> td.unique_counts(td.tensor([3, 1, 3])).values
    tensor([1, 3])
    """
    values, _, _, starts = _groups(x)
    return UniqueCounts(F.take(values, starts), F.group_sizes(starts, x.size))


@public
def unique_inverse(x: Tensor):
    """The different elements of x in ascending order and which of them each element of x is. Every NaN is different.

    >>> td.unique_inverse(td.tensor([3, 1, 3])).inverse_indices
    tensor([1, 0, 1])
    """
    values, order, first, starts = _groups(x)
    return UniqueInverse(F.take(values, starts), F.reshape(F.group_numbers(first, order), x.shape))


@public
def unique_values(x: Tensor):
    """The different elements of x in ascending order. Every NaN is different.

    >>> td.unique_values(td.tensor([3, 1, 3]))
    tensor([1, 3])
    """
    values, _, _, starts = _groups(x)
    return F.take(values, starts)
