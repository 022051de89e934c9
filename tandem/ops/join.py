"""Tensors joined into one, and one tensor cut into several."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime
from tandem.errors import AxisError, ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import Dim, ceildiv
from tandem.ops import rules
from tandem.ops.define import LibraryOp, alias, op, public, register
from tandem.ops.movement import Reshape, take_slice
from tandem.ops.prepare import normalize_axis, promote, show, show_shape


@register
class Concat(LibraryOp):
    """Inputs one after the other along axis; all other sizes agree."""

    name = "concat"
    batching = "axis"
    takes_complex = True
    holomorphic = False
    routine = "concat"
    axis: int

    def infer(self, *xs: Type) -> Type:
        total = sum((x.shape[self.axis] for x in xs[1:]), start=xs[0].shape[self.axis])
        return xs[0].with_shape(xs[0].shape[: self.axis] + (total,) + xs[0].shape[self.axis + 1 :])

    def rule(self, *xs: Type):
        first = xs[0]
        for x in xs:
            rules.allowed(self, x.dtype is first.dtype, f"operands are {xs}; they must have one type")
            rules.need(self, x.ndim == first.ndim and x.ndim > 0, f"operands are {xs}; they must have as many axes")
            others = [a == b for i, (a, b) in enumerate(zip(x.shape, first.shape, strict=True)) if i != self.axis]
            rules.need(self, all(others), f"operands are {xs}; they may differ along axis {self.axis} only")

    def attributes(self, *xs):
        return (self.axis,), ()

    def grad(self, g, *xs):
        start, parts = 0, []
        for x in xs:
            parts.append(take_slice(g, {self.axis: (start, 1, x.shape[self.axis])}))
            start = start + x.shape[self.axis]
        return tuple(parts)


# -- joining


@op
def concat(tensors: Tensors, axis=0):
    """Tensors joined along an axis; axis=None joins them flattened.

    >>> td.concat([td.tensor([1, 2]), td.tensor([3])])
    tensor([1, 2, 3])
    """
    return join("concat", tensors, axis)


def join(name: str, tensors: list, axis: int | None) -> Value:
    if not tensors:
        raise ShapeError(name, "no tensors were given")
    values = list(promote(*tensors))
    if axis is None:
        values = [Reshape((v.type.numel,))(v) for v in values]
        axis = 0
    if any(v.ndim != 1 for v in values):  # empty lists of old: PyTorch leaves them out, whatever the others are
        values = [v for v in values if not (v.ndim == 1 and v.shape[0] == 0)] or values
    first = values[0]
    if first.ndim == 0:
        raise ShapeError(name, "0-d tensors cannot be joined", fix="use stack")
    axis = normalize_axis(name, axis, first.ndim)
    for i, v in enumerate(values[1:], start=1):
        if v.ndim != first.ndim or any(
            a != b for k, (a, b) in enumerate(zip(v.shape, first.shape, strict=True)) if k != axis
        ):
            raise ShapeError(
                name,
                f"tensor 0 is {show_shape(first.shape)} and tensor {i} is {show_shape(v.shape)}; they may "
                f"differ on axis {axis} only",
            )
    return Concat(axis)(*values) if len(values) > 1 else F.Copy()(first)


@op
def stack(tensors: Tensors, axis=0):
    """Tensors of one shape joined along a new axis.

    >>> td.stack([td.tensor([1, 2]), td.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    if not tensors:
        raise ShapeError("stack", "no tensors were given")
    values = promote(*tensors)
    axis = normalize_axis("stack", axis, values[0].ndim + 1)
    for i, v in enumerate(values):
        if v.ndim != values[0].ndim or any(a != b for a, b in zip(v.shape, values[0].shape, strict=True)):
            raise ShapeError(
                "stack",
                f"tensor 0 is {show_shape(values[0].shape)} and tensor {i} is {show_shape(v.shape)}; all need "
                "one shape",
            )
    return join("stack", [F.unsqueeze(v, axis) for v in values], axis)


concat.joins, stack.joins = 1, 2  # what the runtime can do itself: see Note [Joined rows] in src/autobatch/join.cc


@op
def hstack(tensors: Tensors):
    """Tensors joined along axis 1, or axis 0 where they are 1-d.

    >>> td.hstack([td.tensor([1, 2]), td.tensor([3])])
    tensor([1, 2, 3])
    """
    tensors = [at_least(v, 1) for v in promote(*tensors)] if tensors else []
    return join("hstack", tensors, 1 if tensors and tensors[0].ndim > 1 else 0)


@op
def vstack(tensors: Tensors):
    """Tensors joined along axis 0; 1-d ones are rows.

    >>> td.vstack([td.tensor([1, 2]), td.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    return join("vstack", [at_least(v, 2) for v in promote(*tensors)] if tensors else [], 0)


@op
def dstack(tensors: Tensors):
    """Tensors joined along axis 2; 1-d and 2-d ones get it as a last axis.

    >>> td.dstack([td.tensor([1, 2]), td.tensor([3, 4])])
    tensor([[[1, 3],
             [2, 4]]])
    """
    return join("dstack", [at_least(v, 3) for v in promote(*tensors)] if tensors else [], 2)


@op
def column_stack(tensors: Tensors):
    """1-d tensors as the columns of a matrix; 2-d ones joined along axis 1.

    >>> td.column_stack([td.tensor([1, 2]), td.tensor([3, 4])])
    tensor([[1, 3],
            [2, 4]])
    """
    values = promote(*tensors) if tensors else ()
    return join("column_stack", [Reshape((v.type.numel, 1))(v) if v.ndim < 2 else v for v in values], 1)


def at_least(x, ndim: int):
    """x, tensor or value, with axes of size 1 added until there are ndim: where NumPy adds them."""
    if x.ndim >= ndim:
        return x
    if ndim == 3:
        shape = {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}[x.ndim]
    else:
        shape = (1,) * (ndim - x.ndim) + x.shape
    return F.reshape(x, shape)


# -- cutting


def cut(x: Value, axis: int, sizes) -> tuple[Value, ...]:
    parts, start = [], 0
    for size in sizes:
        parts.append(take_slice(x, {axis: (start, 1, size)}))
        start = start + size
    return tuple(parts)


@op(internal=True)
def split_sizes(x: Tensor, sizes: Ints, axis=0):
    """x cut along axis into parts of the given sizes. Views."""
    axis = normalize_axis("split", axis, x.ndim)
    _need_axis("split", x)
    for size in sizes:
        if size < 0:
            raise ValueRangeError("split", f"sizes {show_shape(sizes)} contain a negative size")
    if sum(sizes) != x.shape[axis]:
        raise ShapeError(
            "split",
            f"sizes {show_shape(sizes)} add up to {show(sum(sizes))}, but axis {axis} has size {show(x.shape[axis])}",
        )
    return cut(x, axis, sizes)


def _need_axis(name: str, x):
    if x.ndim == 0:
        raise ShapeError(name, "a 0-d tensor has no axis to cut")


def _axis_size(name: str, x, axis: int) -> Dim:
    axis = normalize_axis(name, axis, x.ndim)
    _need_axis(name, x)
    return x.shape[axis]


def _equal_parts(n: Dim, size: Dim) -> tuple:
    """Parts of `size`, the last of them smaller if need be."""
    count = int(ceildiv(n, size))
    return (size,) * (count - 1) + (n - size * (count - 1),) if count else (0,)


@public(method=True)
def split(x: Tensor, split_size_or_sections, axis=0):
    """x cut along axis into parts of one size (the last may be smaller), or of the sizes in a list. Views.

    >>> td.split(td.arange(5), 2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    >>> td.split(td.arange(3), [1, 2])
    (tensor([0]), tensor([1, 2]))
    """
    n = _axis_size("split", x, axis)
    if isinstance(split_size_or_sections, (tuple, list)):
        return F.split_sizes(x, tuple(split_size_or_sections), axis)
    size = _count("split", "split_size", split_size_or_sections)
    if size < 0 or (size == 0 and n != 0):
        raise ValueRangeError("split", f"parts of size {size} do not fill an axis of size {show(n)}")
    return F.split_sizes(x, _equal_parts(n, size) if size else (0,), axis)


def _count(name: str, parameter: str, value) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: {parameter} must be an integer, not {type(value).__name__}")
    return value.__index__()


@public(method=True)
def chunk(x: Tensor, chunks, axis=0):
    """x cut along axis into at most `chunks` parts of equal size; the last may be smaller. Views.

    >>> td.chunk(td.arange(5), 2)
    (tensor([0, 1, 2]), tensor([3, 4]))
    """
    if type(chunks) is int and type(axis) is int and (views := _runtime.chunk_views(x, chunks, axis)) is not None:
        return views
    n = _axis_size("chunk", x, axis)
    chunks = _count("chunk", "chunks", chunks)
    if chunks <= 0:
        raise ValueRangeError("chunk", f"{chunks} chunks were asked for; at least one is needed")
    if n == 0:
        return F.split_sizes(x, (0,) * min(chunks, _MOST_PARTS), axis)
    return F.split_sizes(x, _equal_parts(n, ceildiv(n, chunks)), axis)


@public(method=True)
def tensor_split(x: Tensor, indices_or_sections, axis=0):
    """x cut along axis at the given indices, or into a number of parts whose sizes differ by at most 1. Views.

    >>> td.tensor_split(td.arange(5), 2)
    (tensor([0, 1, 2]), tensor([3, 4]))
    >>> td.tensor_split(td.arange(5), (1, 4))
    (tensor([0]), tensor([1, 2, 3]), tensor([4]))
    """
    return _split_at("tensor_split", x, indices_or_sections, axis)


_MOST_PARTS = 1_000_000


def _split_at(name: str, x, indices_or_sections, axis: int):
    n = _axis_size(name, x, axis)
    if hasattr(indices_or_sections, "tolist"):
        indices_or_sections = indices_or_sections.tolist()
    if not isinstance(indices_or_sections, (tuple, list)):
        sections = _count(name, "sections", indices_or_sections)
        if sections <= 0:
            raise ValueRangeError(name, f"{sections} parts were asked for; at least one is needed")
        if sections > _MOST_PARTS:
            raise ValueRangeError(
                name, f"{sections} parts were asked for; {_MOST_PARTS} at most make sense as tensors of their own"
            )
        n = int(n)
        return F.split_sizes(x, tuple(n // sections + (i < n % sections) for i in range(sections)), axis)
    n = int(n)
    ends = [slice(None, _count(name, "an index", i)).indices(n)[1] for i in indices_or_sections] + [n]
    parts, start = [], 0
    for end in ends:
        parts.append(
            F.slice_axis(x, axis, min(start, n), max(end - start, 0)) if end > start else F.slice_axis(x, axis, 0, 0)
        )
        start = end
    return tuple(parts)


@public(method=True)
def hsplit(x: Tensor, indices_or_sections):
    """tensor_split along axis 1, or axis 0 where x is 1-d; a number of parts must divide the size.

    >>> td.hsplit(td.arange(4), 2)
    (tensor([0, 1]), tensor([2, 3]))
    """
    return _even_split("hsplit", x, indices_or_sections, 0 if x.ndim == 1 else 1, 1)


@public(method=True)
def vsplit(x: Tensor, indices_or_sections):
    """tensor_split along axis 0 of a tensor with two axes or more; a number of parts must divide the size.

    >>> td.vsplit(td.tensor([[1, 2], [3, 4]]), 2)
    (tensor([[1, 2]]), tensor([[3, 4]]))
    """
    return _even_split("vsplit", x, indices_or_sections, 0, 2)


@public(method=True)
def dsplit(x: Tensor, indices_or_sections):
    """tensor_split along axis 2; a number of parts must divide the size.

    >>> [part.shape for part in td.dsplit(td.zeros(1, 2, 4), 2)]
    [(1, 2, 2), (1, 2, 2)]
    """
    return _even_split("dsplit", x, indices_or_sections, 2, 3)


def _even_split(name: str, x, indices_or_sections, axis: int, ndim: int):
    if x.ndim < ndim:
        raise ShapeError(name, f"x has {x.ndim} axes; at least {ndim} are needed")
    if isinstance(indices_or_sections, int) and indices_or_sections > 0 and x.shape[axis] % indices_or_sections != 0:
        raise ShapeError(
            name,
            f"axis {axis} of size {show(x.shape[axis])} cannot be cut into {indices_or_sections} equal parts",
            fix="use tensor_split",
        )
    return _split_at(name, x, indices_or_sections, axis)


@op
def unbind(x: Tensor, axis=0):
    """The slices of x along axis, without that axis. Views.

    >>> td.unbind(td.tensor([[1, 2], [3, 4]]))
    (tensor([1, 2]), tensor([3, 4]))
    """
    if x.ndim == 0:
        raise AxisError("unbind", "x has no axes; at least 1 is needed")
    axis = normalize_axis("unbind", axis, x.ndim)
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    return tuple(Reshape(rest)(take_slice(x, {axis: (i, 1, 1)})) for i in range(int(x.shape[axis])))


alias("cat", concat)
alias("concatenate", concat)
alias("row_stack", vstack)
alias("unstack", unbind)
