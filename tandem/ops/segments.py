"""Reductions over rows that have the same number, in any order: what JAX calls segment_sum and TensorFlow unsorted_segment_sum."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ShapeError
from tandem.graph.ir import Value
from tandem.ops.define import op
from tandem.ops.index import Gather, Scatter, checked, scatter_sum
from tandem.ops.movement import Reshape
from tandem.ops.precision import in_float32
from tandem.ops.prepare import cast, full_expand, show_shape
from tandem.ops.scatter import _neutral


def _prepared(name: str, x: Value, segment: Value, count):
    if segment.ndim != 1 or x.ndim < 1 or x.shape[0] != segment.shape[0]:
        raise ShapeError(
            name,
            f"x is {show_shape(x.shape)} and segment is {show_shape(segment.shape)}; there must be a number for every row of x",
        )
    return checked(segment, count, 0, name, negative=False)


def _sizes(x: Value, segment: Value, count, dtype):
    ones = F.full(segment.shape, 1, dtype=dtypes.int64)
    found = Scatter("add")(F.full((count,), 0, dtype=dtypes.int64), ones, segment)
    return cast(Reshape((count, *(1,) * (x.ndim - 1)))(found), dtype)


@op
def segment_sum(x: Tensor, segment: Tensor, num_segments: Int):
    """Sums of the rows of x that have the same segment; 0 where there are none. Rows are added in order, whatever the number of
    threads.

    x: (n, *r), segment: (n) of integers from 0 to num_segments - 1 -> (num_segments, *r)

    >>> td.segment_sum(td.tensor([1.0, 2.0, 3.0]), td.tensor([1, 0, 1]), 3)
    tensor([2., 4., 0.])
    """
    segment = _prepared("segment_sum", x, segment, num_segments)
    return scatter_sum(F.full((num_segments, *x.shape[1:]), 0, dtype=x.dtype), x, segment)


@op
def segment_mean(x: Tensor, segment: Tensor, num_segments: Int):
    """Means of the rows of x that have the same segment; 0 where there are none. See segment_sum.

    >>> td.segment_mean(td.tensor([1.0, 2.0, 3.0]), td.tensor([1, 0, 1]), 3)
    tensor([2., 2., 0.])
    """
    if not x.dtype.is_inexact:
        raise DTypeError("segment_mean", f"x is {x.dtype}; means are of floats", fix="convert it: x.float()")
    segment = _prepared("segment_mean", x, segment, num_segments)
    total = scatter_sum(F.full((num_segments, *x.shape[1:]), 0, dtype=x.dtype), x, segment)
    return total / F.maximum(_sizes(x, segment, num_segments, x.dtype), 1)


def _extreme(name: str, mode: str, x: Value, segment: Value, count) -> Value:
    segment = _prepared(name, x, segment, count)
    start = full_expand(_neutral("amax" if mode == "max" else "amin", x.dtype), (count, *x.shape[1:]))
    made = Scatter(mode)(start, x, segment)
    return F.where(F.greater(_sizes(x, segment, count, dtypes.int64), 0), made, F.full((), 0, dtype=x.dtype))


@op
def segment_max(x: Tensor, segment: Tensor, num_segments: Int):
    """Maxima of the rows of x that have the same segment; 0 where there are none. See segment_sum.

    >>> td.segment_max(td.tensor([1.0, 2.0, 3.0]), td.tensor([1, 0, 1]), 3)
    tensor([2., 3., 0.])
    """
    return _extreme("segment_max", "max", x, segment, num_segments)


@op
def segment_min(x: Tensor, segment: Tensor, num_segments: Int):
    """Minima of the rows of x that have the same segment; 0 where there are none. See segment_sum.

    >>> td.segment_min(td.tensor([1.0, 2.0, 3.0]), td.tensor([1, 0, 1]), 3)
    tensor([2., 1., 0.])
    """
    return _extreme("segment_min", "min", x, segment, num_segments)


@op
def segment_prod(x: Tensor, segment: Tensor, num_segments: Int):
    """Products of the rows of x that have the same segment; 1 where there are none. See segment_sum.

    >>> td.segment_prod(td.tensor([1.0, 2.0, 3.0]), td.tensor([1, 0, 1]), 3)
    tensor([2., 3., 1.])
    """
    segment = _prepared("segment_prod", x, segment, num_segments)
    return Scatter("mul")(F.full((num_segments, *x.shape[1:]), 1, dtype=x.dtype), x, segment)


@op
@in_float32
def segment_softmax(x: Tensor, segment: Tensor, num_segments: Int):
    """Softmax over the rows of x that have the same segment.

    x: (n, *r), segment: (n) of integers from 0 to num_segments - 1 -> (n, *r)

    >>> td.segment_softmax(td.tensor([1.0, 5.0, 1.0]), td.tensor([1, 0, 1]), 2)
    tensor([0.5000, 1.0000, 0.5000])
    """
    if not x.dtype.is_floating:
        raise DTypeError("segment_softmax", f"x is {x.dtype}; it must hold floats", fix="convert it: x.float()")
    segment = _prepared("segment_softmax", x, segment, num_segments)
    lowest = F.full((num_segments, *x.shape[1:]), float("-inf"), dtype=x.dtype)
    largest = F.stop_gradient(Scatter("max")(lowest, x, segment))
    raised = F.exp(x - Gather()(largest, segment))
    total = Scatter("add")(F.full((num_segments, *x.shape[1:]), 0, dtype=x.dtype), raised, segment)
    return raised / Gather()(total, segment)
