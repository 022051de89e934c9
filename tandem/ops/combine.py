"""Grids and arrangements in PyTorch's spelling: products of sets, diagonals, mirrored matrices, flat positions."""

from __future__ import annotations

import itertools
import math

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Type
from tandem.ops import rules
from tandem.ops.define import LibraryOp, as_tensor, method, op, public, register
from tandem.ops.prepare import normalize_axis, show_shape
from tandem.ops.scatter import _replace


@public
def cartesian_prod(*tensors):
    """All combinations of one element of each 1-d tensor, in order: one row each. Of one tensor, that tensor.

    >>> td.cartesian_prod(td.tensor([1, 2]), td.tensor([8, 9]))
    tensor([[1, 8],
            [1, 9],
            [2, 8],
            [2, 9]])
    """
    tensors = [as_tensor("cartesian_prod", "a tensor", t) for t in tensors]
    for i, t in enumerate(tensors):
        if t.ndim != 1:
            raise ShapeError("cartesian_prod", f"tensor {i} has {t.ndim} axes; all must have 1")
    if len(tensors) == 1:
        return tensors[0]
    return F.stack([F.reshape(t, (-1,)) for t in F.meshgrid(*tensors, indexing="ij")], -1)


@public(method=True)
def combinations(x: Tensor, r=2, with_replacement=False):
    """All choices of r elements of a 1-d tensor, in order: one row each.

    >>> td.combinations(td.tensor([1, 2, 3]))
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    if x.ndim != 1:
        raise ShapeError("combinations", f"x has {x.ndim} axes; 1 is needed")
    if r < 0:
        raise ValueRangeError("combinations", f"r is {r}; it must not be negative")
    if r == 0:
        return F.full((0,), 0, dtype=x.dtype)
    n = x.shape[0]
    if r == 2:  # the common one, without a list of all
        rows = F.triu_indices(n, n, 0 if with_replacement else 1)
        return F.stack([F.index_select(x, 0, rows[0]), F.index_select(x, 0, rows[1])], 1)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(n), r))
    if not rows:
        return F.full((0, r), 0, dtype=x.dtype)
    index = _runtime.from_data([i for row in rows for i in row], dtypes.int64)
    return F.reshape(F.index_select(x, 0, index), (len(rows), r))


@op
def diagflat(x: Tensor, offset=0):
    """A matrix with all elements of x on its diagonal (or the offset-th above it).

    >>> td.diagflat(td.tensor([[1, 2]]))
    tensor([[1, 0],
            [0, 2]])
    """
    return F.diag_embed(F.Reshape((x.type.numel,))(x), offset)


@op
def fliplr(x: Tensor):
    """x with its second axis reversed. A view.

    >>> td.fliplr(td.tensor([[1, 2], [3, 4]]))
    tensor([[2, 1],
            [4, 3]])
    """
    if x.ndim < 2:
        raise ShapeError("fliplr", f"x has {x.ndim} axes; at least 2 are needed")
    return F.flip(x, 1)


@op
def flipud(x: Tensor):
    """x with its first axis reversed. A view.

    >>> td.flipud(td.tensor([[1, 2], [3, 4]]))
    tensor([[3, 4],
            [1, 2]])
    """
    if x.ndim < 1:
        raise ShapeError("flipud", "x has no axes; at least 1 is needed")
    return F.flip(x, 0)


@op
def vander(x: Tensor, N=None, increasing=False):
    """The matrix of powers of the elements of x, Vandermonde's: columns x ** (N-1), ..., x, 1, or the other way round.

    x: (n) -> (n, N); N is n by default

    >>> td.vander(td.tensor([1, 2, 3]))
    tensor([[1, 1, 1],
            [4, 2, 1],
            [9, 3, 1]])
    """
    if x.ndim != 1:
        raise ShapeError("vander", f"x has {x.ndim} axes; 1 is needed")
    n = x.shape[0] if N is None else N
    if n < 0:
        raise ValueRangeError("vander", f"N is {N}; it must not be negative")
    shape = (x.shape[0], n)
    exponent = F.Iota(shape, 1, dtypes.int64)()
    exponent = exponent if increasing else F.subtract(F.Size(n, dtypes.int64)() - 1, exponent)
    if x.dtype.is_inexact:
        exponent = F.astype(exponent, x.dtype)
    elif x.dtype.kind == "bool":
        x = F.astype(x, dtypes.int64)
    return F.power(F.Expand(shape)(F.Reshape((x.shape[0], 1))(x)), exponent)


@public
def unravel_index(indices: Tensor, shape):
    """Positions that count flat, in row-major order, as one tensor of positions per axis.

    >>> td.unravel_index(td.tensor([5]), (2, 3))
    (tensor([1]), tensor([2]))
    """
    if not indices.dtype.is_integer:
        raise DTypeError("unravel_index", f"indices are {indices.dtype}; they must be integers")
    shape = tuple(shape.tolist()) if hasattr(shape, "tolist") else (shape,) if isinstance(shape, int) else tuple(shape)
    total = math.prod(shape)
    if indices.size and not (0 <= int(F.amin(indices)) and int(F.amax(indices)) < total):
        raise ValueRangeError("unravel_index", f"indices reach beyond the {total} elements of shape {shape}")
    made, indices = [], F.astype(indices, dtypes.int64)
    for n in reversed(shape):
        made.append(F.remainder(indices, n))
        indices = F.floor_divide(indices, n)
    return tuple(reversed(made))


@op
def take_along_dim(x: Tensor, indices: Tensor, axis=None):
    """take_along_axis in PyTorch's order; without an axis, x and indices count flat.

    >>> td.take_along_dim(td.tensor([[3, 1], [2, 4]]), td.tensor([[1], [0]]), 1)
    tensor([[1],
            [2]])
    """
    if axis is None:
        return F.take(F.Reshape((x.type.numel,))(x), F.Reshape((indices.type.numel,))(indices), 0)
    return F.take_along_axis(x, indices, axis)


@method(name="take")
def _take(x, index, axis=None, *, dim=None):
    """Elements at positions that count x flat, in the shape of index; with an axis, along it."""
    axis = axis if dim is None else dim
    index = as_tensor("take", "index", index)
    if axis is None:
        return F.reshape(F.take(F.reshape(x, (-1,)), F.reshape(index, (-1,)), 0), index.shape)
    return F.take(x, index, axis)


@public(method=True)
def diagonal_scatter(x: Tensor, source: Tensor, offset=0, axis1=0, axis2=1):
    """x with source in place of its diagonal (or the offset-th above it).

    >>> td.diagonal_scatter(td.zeros(2, 2), td.ones(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    result = F.clone(x)
    _replace("diagonal_scatter", F.diagonal(result, offset, axis1, axis2), source)
    return result


@public(method=True)
def as_strided_scatter(x: Tensor, source: Tensor, size, stride, storage_offset=None):
    """x with source in place of the elements that as_strided with the same arguments shows.

    >>> td.as_strided_scatter(td.zeros(2, 2), td.ones(2), (2,), (3,))
    tensor([[1., 0.],
            [0., 1.]])
    """
    result = F.clone(x)
    _replace("as_strided_scatter", F.as_strided(result, size, stride, storage_offset), source)
    return result


@method
def fill_diagonal_(x, fill_value, wrap=False):
    """Writes a value on the main diagonal: where all indices are equal. wrap: tall matrices start over below."""
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) > 1):
        raise ShapeError("fill_diagonal_", f"x is {show_shape(x.shape)}; it must be a matrix, or have equal sizes")
    step = sum(math.prod(x.shape[i + 1 :]) for i in range(x.ndim))
    size = x.size if wrap and x.ndim == 2 else min(x.size, step * min(x.shape))
    if x.ndim == 2 and x.shape[0] > x.shape[1] and not wrap:
        size = min(size, x.shape[1] * x.shape[1])
    index = F.arange(0, size, step) if size else F.full((0,), 0, dtype=dtypes.int64)
    return F.put_(x, index, fill_value)


@op
def nonzero_static(x: Tensor, *, size: Int, fill_value: Tensor = -1):
    """The first `size` positions of elements that are not zero, as nonzero gives them, filled up with fill_value.

    x: (*s) -> (size, ndim) int64

    >>> td.nonzero_static(td.tensor([0, 5, 7]), size=3)
    tensor([[ 1],
            [ 2],
            [-1]])
    """
    flags = F.astype(F.not_equal(F.Reshape((x.type.numel,))(x), 0), dtypes.int64)
    rank = F.cumsum(flags, 0) - 1
    n = x.type.numel
    # Each position goes to its rank; what is zero, or comes too late, to a place that is cut off.
    place = F.where(F.logical_and(F.equal(flags, 1), F.less(rank, size)), rank, F.Size(size, dtypes.int64)())
    flat = F.Scatter("set")(F.full((size + 1,), -1, dtype=dtypes.int64), F.Iota((n,), 0, dtypes.int64)(), place)
    flat = F.slice_axis(flat, 0, 0, size)
    found = F.greater_equal(flat, 0)
    columns, step = [], 1
    for d in reversed(x.shape):
        columns.append(F.where(found, F.remainder(F.floor_divide(flat, step), d), fill_value))
        step = step * d
    if not columns:
        return F.full((size, 0), 0, dtype=dtypes.int64)
    return F.stack(list(reversed(columns)), 1)


@public(name="segment_reduce")
def segment_reduce(
    data: Tensor, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None
):
    """Sums ("sum"), means, maxima ("max"), minima or products ("prod") over neighbouring stretches of an axis, which lengths or
    offsets divide. Each begins with `initial`, or with what the reduction of nothing is. unsafe: lengths are not checked, so that
    nothing is read back. axis: the last of lengths, each row of which divides its own row of data.

    data: (*b, n, *r), lengths: (*b, k), or offsets: (*b, k + 1) -> (*b, k, *r)

    >>> td.segment_reduce(td.tensor([1.0, 2.0, 3.0]), "sum", lengths=td.tensor([1, 2]))
    tensor([1., 5.])
    """
    kinds = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "prod": "prod"}
    if reduce not in kinds:
        raise ValueRangeError("segment_reduce", f"reduce is {reduce!r}; it must be one of {', '.join(kinds)}")
    if (lengths is None) == (offsets is None):
        raise ValueRangeError("segment_reduce", "give either lengths or offsets")
    axis = normalize_axis("segment_reduce", axis, data.ndim)
    given = as_tensor("segment_reduce", "lengths", lengths) if offsets is None else as_tensor(
        "segment_reduce", "offsets", offsets
    )  # fmt: skip
    name = "lengths" if offsets is None else "offsets"
    if not given.dtype.is_integer:
        raise DTypeError("segment_reduce", f"{name} are {given.dtype}; they must be integers")
    if given.ndim != axis + 1 or given.shape[:axis] != data.shape[:axis]:
        raise ShapeError(
            "segment_reduce",
            f"{name} are {show_shape(given.shape)} and data is {show_shape(data.shape)}; along axis {axis} they must have "
            f"{axis + 1} {'axis' if axis == 0 else 'axes'}, all but the last as data has them",
        )
    lengths = given if offsets is None else F.diff(given)
    if not unsafe:
        _check_lengths(data, lengths, None if offsets is None else given, axis)
    first = None if initial is None else float(initial)
    if not axis:
        return _segments(data, lengths, reduce, first)
    made = _segments(
        F.reshape(data, (-1, *data.shape[axis + 1 :])) if data.size else F.reshape(data, (0, *data.shape[axis + 1 :])),
        F.reshape(lengths, (-1,)), reduce, first,
    )  # fmt: skip
    return F.reshape(made, (*lengths.shape, *data.shape[axis + 1 :]))


def _check_lengths(data, lengths, offsets, axis: int):
    """That lengths, or offsets, divide an axis of data."""
    if offsets is not None and offsets.size and bool(F.any(offsets[..., 0] != 0)):
        raise ValueRangeError("segment_reduce", "offsets do not begin with 0")
    if bool(F.any(lengths < 0)):
        raise ValueRangeError(
            "segment_reduce",
            f"lengths contain {int(F.amin(lengths))}; none may be negative"
            if offsets is None
            else "offsets fall; they must rise",
        )
    wrong = F.not_equal(F.sum(lengths, -1), data.shape[axis])
    if bool(F.any(wrong)):
        total = int(F.sum(lengths, -1)[wrong][0] if axis else F.sum(lengths))
        raise ShapeError("segment_reduce", f"lengths add up to {total}, but data is {show_shape(data.shape)}")


_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -math.inf, "amin": math.inf}


@register
class SegmentReduce(LibraryOp):
    """kind (sum, prod, amax, amin) over neighbouring stretches of the first axis, of int64 lengths, each from `initial` on."""

    name = "segment_reduce"
    routine = "segment_reduce"
    only_on = "cpu"
    kind: str
    initial: float
    takes = "T[n,*rest] i64[k]"

    def infer(self, data: Type, lengths: Type) -> Type:
        return data.with_shape((lengths.shape[0], *data.shape[1:]))

    def rule(self, data: Type, lengths: Type):
        rules.one_of(self, "kind", self.kind, ("sum", "prod", "amax", "amin"))

    def attributes(self, data, lengths):
        return (("sum", "prod", "amax", "amin").index(self.kind),), (self.initial,)

    def grad(self, g, data, lengths, *, vjp):
        return vjp(lambda v: self.composed(v, lengths), [data], [g])[0], None

    def composed(self, data, lengths):
        return _by_owner(data, lengths, self.kind, self.initial)


@op(name="segment_reduce", hidden=True)
def _segments(data: Tensor, lengths: Tensor, reduce, initial):
    kind = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "prod": "prod"}[reduce]
    count, lengths = lengths.shape[0], F.astype(lengths, dtypes.int64)
    start = float(_NEUTRAL[kind] if initial is None else initial)
    if not data.dtype.is_floating:
        made = _by_owner(data, lengths, "sum" if kind == "mean" else kind, start)
    else:
        made = SegmentReduce("sum" if kind == "mean" else kind, start)(data, lengths)
    if kind != "mean":
        return made
    size = F.Reshape((count, *(1,) * (data.ndim - 1)))(F.astype(lengths, data.dtype))
    return F.where(F.equal(size, 0), math.nan if initial is None else initial, made / F.maximum(size, 1))


def _by_owner(data, lengths, kind: str, start: float):
    """The same by telling each element which segment it belongs to."""
    count, n = lengths.shape[0], data.shape[0]
    ends = F.cumsum(lengths, 0)
    # An element's segment: how many end at or before it.
    marks = F.Scatter("add")(
        F.full((n + 1,), 0, dtype=dtypes.int64), F.full((count,), 1, dtype=dtypes.int64), F.clip(ends, 0, n)
    )
    owner = F.cumsum(F.slice_axis(marks, 0, 0, n), 0)
    if not data.dtype.is_floating and math.isinf(start):
        least, most = data.dtype.range
        start = least if start < 0 else most
    base = F.full((count, *data.shape[1:]), start, dtype=data.dtype)
    if kind == "sum":
        return F.index_add(base, 0, owner, data)
    return F.index_reduce(base, 0, owner, data, kind)


@method
def sum_to_size(x, *sizes, size=None):
    """Sums over what broadcasting would have added to reach x from a tensor of this size."""
    size = sizes if size is None else (size,)
    size = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)
    lead = x.ndim - len(size)
    if lead < 0 or any(s not in (1, n) for s, n in zip(size, x.shape[lead:], strict=True)):
        raise ShapeError("sum_to_size", f"size {size} does not broadcast to x {show_shape(x.shape)}")
    axes = tuple(i for i, n in enumerate(x.shape[lead:], lead) if size[i - lead] == 1 and n != 1)
    if not lead and not axes and x.dtype.is_inexact:
        return x
    summed = F.sum(x, tuple(range(lead)) + axes, dtype=None if x.dtype.is_inexact else dtypes.int64)
    return F.reshape(summed, size)
