"""Counting: how often values or ranges of values occur."""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.ops import rules
from tandem.ops.define import LibraryOp, as_tensor, op, public, register
from tandem.ops.index import scatter_sum
from tandem.ops.prepare import cast, constant, show, show_shape


class Histogram(NamedTuple):
    """What histogram gives."""

    hist: object
    bin_edges: object


@register
class Bincount(LibraryOp):
    """How often low, low + 1, ... occur in x: (size) int64."""

    name = "bincount"
    routine = "bincount"
    may_fail = True
    low: object  # Dim
    size: object  # Dim
    takes = "I[*s]"

    def infer(self, x: Type) -> Type:
        return Type(dtypes.int64, (self.size,))

    def rule(self, x: Type):
        rules.size(self, "low", self.low, -(2**63))
        rules.size(self, "size", self.size)

    def attributes(self, x):
        return (self.low,), ()


@op(internal=True)
def count_integers(x: Tensor, low: Int, size: Int):
    """How often each of low, low + 1, ... up to low + size - 1 occurs among the integers x, which has no others."""
    return Bincount(low, size)(F.stop_gradient(x))


@op(name="bincount", hidden=True)
def _bincount(x: Tensor, weights: Tensor, size: Int):
    if weights.ndim != 1 or weights.shape[0] != x.shape[0]:
        raise ShapeError(
            "bincount", f"x is {show_shape(x.shape)} and weights {show_shape(weights.shape)}; they must agree"
        )
    if not weights.dtype.is_inexact:
        weights = cast(weights, dtypes.float64)
    # The caller has looked at the smallest and the largest: no position needs a check.
    return scatter_sum(F.full((size,), 0, dtype=weights.dtype), weights, x)


@public(method=True)
def bincount(x: Tensor, weights=None, minlength=0):
    """How often each of 0, 1, 2, ... occurs in x, or the sum of the weights that go with it.

    x: (n) of integers that are not negative -> (largest + 1, at least minlength); weights: (n)

    >>> td.bincount(td.tensor([0, 2, 2]))
    tensor([1, 0, 2])
    """
    if x.ndim != 1 or not (x.dtype.is_integer or x.dtype.kind == "bool"):
        raise DTypeError(
            "bincount", f"x is {x.dtype} of shape {show_shape(x.shape)}; it must hold integers on one axis"
        )
    if minlength < 0:
        raise ValueRangeError("bincount", f"minlength is {minlength}; it must not be negative")
    x = F.astype(x, dtypes.int64, copy=False)
    if weights is None and not isinstance(x, Value):
        made = _runtime.bincount(x, minlength)
        if made is not None:
            return made
    size = 0
    if x.shape[0]:
        low, high = F.aminmax(x)
        if int(low) < 0:
            raise ValueRangeError("bincount", f"x contains {int(low)}; numbers must not be negative")
        size = int(high) + 1
    if weights is None:
        return F.count_integers(x, 0, max(size, minlength))
    return _bincount(x, as_tensor("bincount", "weights", weights), max(size, minlength))


def _limits(x, low, high):
    """(low, high) as values; those of the data if both are given as equal. An empty range is widened by 1 each way."""
    low, high = (v if hasattr(v, "shape") else constant(v, x.dtype) for v in (low, high))
    none = F.equal(low, high)
    if x.type.numel > 0:
        low, high = F.where(none, F.amin(x), low), F.where(none, F.amax(x), high)
    none = F.equal(low, high)
    return F.where(none, low - 1, low), F.where(none, high + 1, high)


def _equal_bins(x, bins, low, high):
    """(bin of each element, whether it lies in the range) for bins of one width; the last contains its upper edge."""
    place = (x - low) * cast(constant(bins, dtypes.int64), x.dtype) / (high - low)
    inside = F.logical_and(F.greater_equal(x, low), F.less_equal(x, high))
    index = cast(F.floor(F.where(inside, place, 0)), dtypes.int64)
    return F.clip(index, 0, bins - 1), inside


@op
def histc(x: Tensor, bins: Int = 100, min: Tensor = 0, max: Tensor = 0):
    """How many elements fall into each of so many ranges of one width from min to max (of the data, if both are equal). Elements
    outside are not counted.

    x: (*s) -> (bins), dtype of x

    >>> td.histc(td.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3)
    tensor([0., 2., 1., 0.])
    """
    if bins <= 0:
        raise ValueRangeError("histc", f"bins is {show(bins)}; it must be positive")
    wide = x if x.dtype.is_floating else cast(x, dtypes.float64)
    wide = F.stop_gradient(F.Reshape((x.type.numel,))(wide))
    low, high = _limits(wide, F.astype(min, wide.dtype), F.astype(max, wide.dtype))
    index, inside = _equal_bins(wide, bins, low, high)
    return F.index_add(F.full((bins,), 0, dtype=x.dtype), 0, index, cast(inside, x.dtype))


@op(name="histogram", hidden=True)
def _edges(bins: Int, low: Tensor, high: Tensor, dtype):
    place = F.Iota((bins + 1,), 0, dtype)()
    low, high = cast(low, dtype), cast(high, dtype)
    return F.where(F.equal(place, bins), high, low + place * ((high - low) / bins))


@op(name="histogram", hidden=True)
def _counts(points: Tensor, edges: Tensors, weight: Tensor | None, density):
    """points (n, d) counted in a grid of d sorted sequences of edges."""
    n = points.shape[0]
    flat = F.full((n,), 0, dtype=dtypes.int64)
    inside = F.full((n,), True, dtype=dtypes.bool_)
    shape, total = [], 1
    for k, line in enumerate(edges):
        x = F.Reshape((n,))(F.slice_axis(points, 1, k, 1))
        if line.ndim != 1:
            raise ShapeError("histogram", f"edges are {show_shape(line.shape)}; they must have one axis")
        size = line.shape[0] - 1
        if size <= 0:
            raise ShapeError("histogram", f"edges are {show_shape(line.shape)}; at least 2 are needed")
        last = F.Reshape(())(F.slice_axis(line, 0, size, 1))
        place = F.searchsorted(line, x, right=True) - 1
        place = F.where(F.equal(x, last), size - 1, place)  # the last bin contains its upper edge
        inside = F.logical_and(inside, F.logical_and(F.greater_equal(place, 0), F.less(place, size)))
        flat = flat * size + F.clip(place, 0, size - 1)
        shape.append(size)
        total = total * size
    amount = F.full((n,), 1, dtype=points.dtype) if weight is None else F.astype(F.Reshape((n,))(weight), points.dtype)
    made = F.index_add(F.full((total,), 0, dtype=points.dtype), 0, flat, F.where(inside, amount, 0))
    made = F.Reshape(tuple(shape))(made)
    if density:
        made = made / F.sum(made)
        for k, line in enumerate(edges):
            widths = F.diff(line)
            made = made / F.Reshape((*widths.shape, *(1,) * (len(shape) - 1 - k)))(widths)
    return made


def _edges_for(name: str, x, bins, limits):
    """Edges of one axis from a number of bins; limits (low, high) or None for those of x."""
    if bins <= 0:
        raise ValueRangeError(name, f"bins is {bins}; it must be positive")
    if limits is None:
        low, high = (0.0, 1.0) if x.size == 0 else [float(v) for v in F.aminmax(x)]
    else:
        low, high = (float(v) for v in limits)
        if low > high:
            raise ValueRangeError(name, f"the range from {low} to {high} is empty")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return _edges(bins, low, high, x.dtype)


@public(method=True)
def histogram(x: Tensor, bins, *, range=None, weight=None, density=False):
    """(hist, bin_edges): how many elements, or how much weight, fall into each bin. bins: their number, of one width over `range`
    (that of the data by default), or a sorted 1-d tensor of edges. density: so that the integral is 1.

    >>> td.histogram(td.tensor([1.0, 2.0, 1.0]), bins=2, range=(0.0, 4.0)).hist
    tensor([2., 1.])
    """
    x = F.astype(x, dtypes.float32) if not x.dtype.is_floating else x
    flat = F.reshape(x.detach() if hasattr(x, "detach") else x, (-1, 1))
    if isinstance(bins, int):
        edges = _edges_for("histogram", flat, bins, range)
    else:
        edges = as_tensor("histogram", "bins", bins)
    weight = None if weight is None else F.reshape(as_tensor("histogram", "weight", weight), (-1,))
    return Histogram(_counts(flat, [edges], weight, bool(density)), edges)


@public
def histogramdd(x: Tensor, bins, *, range=None, weight=None, density=False):
    """(hist, bin_edges) of points in several dimensions: counts on a grid, and a tuple with the edges of each axis.

    x: (*n, d). bins: a number, d numbers, or d tensors of edges; range: low and high of each axis, all in one sequence.

    >>> td.histogramdd(td.tensor([[0.0, 1.0], [1.0, 0.0]]), bins=[2, 2]).hist
    tensor([[0., 1.],
            [1., 0.]])
    """
    if x.ndim < 2:
        raise ShapeError("histogramdd", f"x is {show_shape(x.shape)}; it must be (*n, d)")
    x = F.astype(x, dtypes.float32) if not x.dtype.is_floating else x
    d = x.shape[-1]
    points = F.reshape(x.detach() if hasattr(x, "detach") else x, (-1, d))
    bins = [bins] * d if isinstance(bins, int) else list(bins)
    if len(bins) != d:
        raise ShapeError("histogramdd", f"{len(bins)} bins were given for {d} dimensions")
    edges = []
    for k, b in enumerate(bins):
        if isinstance(b, int):
            limits = None if range is None else (range[2 * k], range[2 * k + 1])
            edges.append(_edges_for("histogramdd", points[:, k], b, limits))
        else:
            edges.append(as_tensor("histogramdd", "bins", b))
    weight = None if weight is None else F.reshape(as_tensor("histogramdd", "weight", weight), (-1,))
    return Histogram(_counts(points, edges, weight, bool(density)), tuple(edges))
