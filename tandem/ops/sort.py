"""Order along an axis."""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.ops import rules
from tandem.ops.define import LibraryOp, method, op, public, register
from tandem.ops.movement import take_slice
from tandem.ops.prepare import constant, normalize_axis, promote, show, show_shape
from tandem.ops.reduce import at_positions, reduce


class _Ordering(LibraryOp):
    def grad(self, g, x, *, out):
        return _to_old_places(g[0], x, self.axis, out[1])


def _to_old_places(g, x, axis: int, index):
    """Gradients of elements in order, each where its element came from."""
    if not x.ndim:
        return g
    indices = [index if a == axis else F.Iota(index.shape, a, dtypes.int64)() for a in range(x.ndim)]
    return F.Scatter("add")(F.zeros_like(x), g, *indices)


@register
class Sort(_Ordering):
    """(values, int64 positions) along axis. NaN is greater than everything; equal elements keep their order."""

    name = "sort"
    batching = "axis"
    routine = "sort"
    axis: int
    descending: bool
    takes = "?[*s]"

    def infer(self, x: Type) -> tuple[Type, Type]:
        return x, x.with_dtype(dtypes.int64)

    def attributes(self, x):
        return (self.axis, int(self.descending), 1), ()


@register
class SortValues(LibraryOp):
    """What Sort gives first, quicker for not knowing positions; of zeros, -0.0 comes first."""

    name = "sort_values"
    batching = "axis"
    routine = "sort_values"
    axis: int
    descending: bool
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        return x

    def attributes(self, x):
        return (self.axis, int(self.descending)), ()

    def grad(self, g, x):
        return _to_old_places(g, x, self.axis, Sort(self.axis, self.descending)(F.stop_gradient(x))[1])


@register
class TopK(_Ordering):
    """(values, int64 positions) of the k largest (or smallest) along axis, in order."""

    name = "topk"
    batching = "axis"
    routine = "topk"
    axis: int
    k: object  # Dim
    largest: bool
    takes = "?[*s]"

    def infer(self, x: Type) -> tuple[Type, Type]:
        shape = (*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :]) if x.ndim else ()
        return x.with_shape(shape), Type(dtypes.int64, shape)

    def rule(self, x: Type):
        rules.size(self, "k", self.k)
        rules.need(self, self.k <= (x.shape[self.axis] if x.ndim else 1), f"k is {self.k}, and x is {x!r}")

    def attributes(self, x):
        return (self.axis, self.k, int(self.largest), 1), ()


@register
class Select(LibraryOp):
    """Where along axis, which stays with size 1, the k-th smallest element is, from 0: of equal ones the one that Sort would put
    there. nan_wins: the first NaN where there is one."""

    name = "select"
    batching = "axis"
    routine = "select"
    only_on = "cpu"
    axis: int
    k: object  # Dim
    nan_wins: bool
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        return Type(dtypes.int64, (*x.shape[: self.axis], 1, *x.shape[self.axis + 1 :]))

    def rule(self, x: Type):
        rules.size(self, "k", self.k)
        rules.need(self, x.ndim > 0 and self.k < x.shape[self.axis], f"k is {self.k}, and x is {x!r}")

    def attributes(self, x):
        return (self.axis, self.k, int(self.nan_wins)), ()

    def composed(self, x):
        order = Sort(self.axis, False)(x)[1]
        index = take_slice(order, {self.axis: (self.k, 1, 1)})
        if not self.nan_wins or not x.dtype.is_floating:
            return index
        odd = F.isnan(x)
        return F.where(
            F.any(odd, self.axis, True), reduce(F.astype(odd, dtypes.uint8), "argmax", (self.axis,), True), index
        )


class Ordered(NamedTuple):
    """Elements in order and where they were."""

    values: object
    indices: object


@op(name="sort", hidden=True)
def _sort(x: Tensor, axis, descending):
    return Sort(normalize_axis("sort", axis, x.ndim), descending)(x)


@op(name="sort", hidden=True)
def _sort_values(x: Tensor, axis, descending):
    return SortValues(normalize_axis("sort", axis, x.ndim), descending)(x)


@public
def sort(x: Tensor, dim=None, descending=False, stable=True, *, axis=-1):
    """Elements of x in ascending order along an axis; equal ones keep their order, NaN comes last. As the Array API has it, one
    tensor; with `dim`, or an axis by position, as PyTorch has it, (values, indices), as x.sort() does always.

    >>> td.sort(td.tensor([3, 1, 2]))
    tensor([1, 2, 3])
    >>> td.sort(td.tensor([3, 1, 2]), dim=0).indices
    tensor([1, 2, 0])
    """
    descending = bool(descending)
    if dim is not None:
        return Ordered(*_sort(x, dim, descending))
    if isinstance(x, Value) or x.requires_grad:
        return _sort(x, axis, descending)[0]  # the gradient needs positions anyway
    return _sort_values(x, axis, descending)


@method(name="sort")
def _sort_method(x, axis=-1, descending=False, stable=True, *, dim=None):
    """As in PyTorch: (values, indices) in ascending order along an axis; equal elements keep their order, NaN comes last."""
    return Ordered(*_sort(x, axis if dim is None else dim, bool(descending)))


@op
def argsort(x: Tensor, axis=-1, descending=False, stable=True):
    """Positions that would put x in order along an axis; equal elements keep their order.

    >>> td.argsort(td.tensor([3, 1, 2]))
    tensor([1, 2, 0])
    """
    return Sort(normalize_axis("argsort", axis, x.ndim), bool(descending))(x)[1]


@op(name="topk", hidden=True)
def _topk(x: Tensor, k: Int, axis, largest):
    axis = normalize_axis("topk", axis, x.ndim)
    size = x.shape[axis] if x.ndim else 1
    if not 0 <= k <= size:
        raise ValueRangeError(
            "topk", f"k is {show(k)}, but axis {axis} of x {show_shape(x.shape)} has {show(size)} elements"
        )
    return TopK(axis, k, largest)(x)


@public(method=True)
def topk(x: Tensor, k, axis=-1, largest=True, sorted=True, *, dim=None):
    """(values, indices) of the k largest elements along an axis, largest first; with largest=False, the smallest.

    >>> td.topk(td.tensor([1, 9, 4]), 2).values
    tensor([9, 4])
    """
    return Ordered(*_topk(x, k, axis if dim is None else dim, bool(largest)))


@op(name="kthvalue", hidden=True)
def _kthvalue(x: Tensor, k: Int, axis, keepdims):
    axis = normalize_axis("kthvalue", axis, x.ndim)
    size = x.shape[axis] if x.ndim else 1
    if not 1 <= k <= size:
        raise ValueRangeError(
            "kthvalue", f"k is {show(k)}, but axis {axis} of x {show_shape(x.shape)} has {show(size)} elements"
        )
    if not x.ndim:
        return F.Copy()(x), F.full((), 0, dtype=dtypes.int64)
    indices = Select(axis, k - 1, False)(F.stop_gradient(x))
    values = at_positions(x, axis, indices)
    return (values, indices) if keepdims else (F.squeeze(values, axis), F.squeeze(indices, axis))


@public(method=True)
def kthvalue(x: Tensor, k, axis=-1, keepdims=False, *, dim=None, keepdim=False):
    """(values, indices) of the k-th smallest element along an axis, counted from 1.

    >>> td.kthvalue(td.tensor([3, 1, 2]), 2).values
    tensor(2)
    """
    return Ordered(*_kthvalue(x, k, axis if dim is None else dim, bool(keepdims or keepdim)))


@op(name="median", hidden=True)
def _median(x: Tensor, axis, keepdims):
    axis = normalize_axis("median", axis, x.ndim)
    if x.ndim == 0:
        return F.Copy()(x), F.full((), 0, dtype=dtypes.int64)
    size = x.shape[axis]
    if size == 0:
        raise ShapeError("median", f"there is no median of zero elements: x is {show_shape(x.shape)}, axis {axis}")
    index = Select(axis, (size - 1) // 2, True)(F.stop_gradient(x))
    values = at_positions(x, axis, index)
    return (values, index) if keepdims else (F.squeeze(values, axis), F.squeeze(index, axis))


@op(name="median", hidden=True)
def _median_of_all(x: Tensor):
    return _median(F.Reshape((x.type.numel,))(x), 0, False)[0]


@public(method=True)
def median(x: Tensor, axis=None, keepdims=False, *, dim=None, keepdim=False):
    """The middle element in order, the lower of two; NaN if there is one. With an axis, (values, indices) along it.

    >>> td.median(td.tensor([5.0, 1.0, 3.0, 2.0]))
    tensor(2.)
    """
    axis = axis if dim is None else dim
    if axis is None:
        return _median_of_all(x)
    return Ordered(*_median(x, axis, bool(keepdims or keepdim)))


@op
def searchsorted(sorted_sequence: Tensor, values: Tensor, *, side="left", right=False, sorter: Tensor | None = None):
    """Where values would have to be put into a sorted sequence to keep it in order: before equal elements (side="left") or after
    them ("right"). NaN counts as greater than everything. A sorter holds the positions that would sort the sequence.

    sorted_sequence: (*b, n), values: (*b, m), or any shape if there are no b -> shape of values, int64

    >>> td.searchsorted(td.tensor([1, 3, 5]), td.tensor([3, 4]))
    tensor([1, 2])
    """
    if side not in ("left", "right"):
        raise ValueRangeError("searchsorted", f"side is {side!r}; it must be 'left' or 'right'")
    right = right or side == "right"
    line, values = promote(sorted_sequence, values)
    if line.ndim == 0 or (line.ndim > 1 and line.shape[:-1] != values.shape[:-1]):
        raise ShapeError(
            "searchsorted",
            f"sorted_sequence is {show_shape(line.shape)} and values are {show_shape(values.shape)}; "
            "all axes but the last must agree, or the sequence be 1-d",
        )
    if sorter is not None:
        if (
            not sorter.dtype.is_integer
            or sorter.ndim != line.ndim
            or any(a != b for a, b in zip(sorter.shape, line.shape, strict=True))
        ):
            raise ShapeError(
                "searchsorted",
                f"sorter is {sorter.dtype} {show_shape(sorter.shape)}; it must hold integers and have the shape of "
                f"sorted_sequence, {show_shape(line.shape)}",
                fix="use td.argsort(sorted_sequence)",
            )
        line = F.take_along_axis(line, sorter, -1)
    return _bisect(line, values, right)


def _bisect(line: Value, values: Value, right: bool) -> Value:
    """Binary search for all values at once. The number of steps depends on the size, so a plan serves sizes of one power of two."""
    size = line.shape[-1]
    low = F.full(values.shape, 0, dtype=dtypes.int64)
    if size == 0:
        return low
    lead = [F.Iota(values.shape, a, dtypes.int64)() for a in range(line.ndim - 1)]
    nan = F.isnan(values)
    reach = 1
    while reach <= size:
        reach *= 2
    count = constant(size, dtypes.int64)
    step = reach // 2
    while step >= 1:
        # Take the step if it stays within the line and everything up to it belongs before the value.
        probe = low + step
        element = F.Gather()(line, *lead, F.minimum(probe, count) - 1)
        if right:
            before = F.logical_or(F.less_equal(element, values), nan)
        else:
            before = F.logical_or(F.less(element, values), F.logical_and(nan, F.logical_not(F.isnan(element))))
        low = F.where(F.logical_and(F.less_equal(probe, count), before), probe, low)
        step //= 2
    return low


@op
def bucketize(x: Tensor, boundaries: Tensor, *, right=False):
    """The number of the interval between sorted boundaries that each element falls into; right says on which side equal ones go.

    >>> td.bucketize(td.tensor([0.5, 3.0]), td.tensor([1.0, 2.0]))
    tensor([0, 2])
    """
    return F.searchsorted(boundaries, x, right=right)
