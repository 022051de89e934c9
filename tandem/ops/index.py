"""Reading and writing at computed positions: the primitives, and the functions on integer index tensors."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ShapeError
from tandem.graph.ir import Type, Value
from tandem.ops import rules
from tandem.ops.define import LibraryOp, Op, Role, inplace, op, register
from tandem.ops.movement import Permute, Reshape
from tandem.ops.precision import widen
from tandem.ops.prepare import (
    as_dtype_value,
    broadcast_shapes,
    cast,
    constant,
    full_expand,
    normalize_axis,
    show_shape,
)  # fmt: skip


@register
class CheckIndex(LibraryOp):
    """Passes the index tensor on after checking -bound <= index < bound (0 <= index without `negative`); raises an error that
    names value, axis and bound."""

    name = "check_index"
    batching = "leading"
    fuses = True
    takes_complex = True
    routine = "check_index"
    may_fail = True
    checks = True
    stays = True  # code that runs at once would have failed
    bound: object  # Dim
    axis: int
    negative: bool = True
    takes = "I[*s]"
    axis_of = None

    def infer(self, index: Type) -> Type:
        return index

    def rule(self, index: Type):
        rules.size(self, "bound", self.bound)
        rules.inside(self, self.axis, rules.MOST_AXES)

    def attributes(self, index):
        return (self.bound, int(self.negative), self.axis), ()


@register
class CheckWeights(CheckIndex):
    """Passes int64 codes of faults on if they are all 0; raises what is wrong otherwise: of the weights of a draw, 1 a number that
    is negative or not finite, 2 all are 0, 3 one that is no probability; 4 nested tensors of different lengths."""

    name = "check_weights"
    routine = "check_weights"
    may_fail = True
    bound: object = 1
    axis: int = 0
    negative: bool = False

    def attributes(self, index):
        return (), ()


def known(x: Value, wrong: Value, code: int) -> Value:
    """x, once it is known that nothing in `wrong` is true; the error of this code otherwise."""
    return x + cast(F.CheckWeights()(cast(F.any(wrong), dtypes.int64) * code), x.dtype)


def known_shares(x: Value) -> Value:
    """x, once it is known that all of its elements are between 0 and 1 (or NaN); an error otherwise."""
    return known(x, F.logical_or(F.less(x, constant(0, x.dtype)), F.less(constant(1, x.dtype), x)), 3)


@register
class CheckDivisor(CheckIndex):
    """Passes a divisor of integers on if it has no 0; raises an error otherwise."""

    name = "check_divisor"
    routine = "check_divisor"
    may_fail = True
    bound: object = 1
    axis: int = 0
    negative: bool = False

    def attributes(self, divisor):
        return (), ()


def _indices_fit(op, x: Type, indices):
    rules.need(op, 1 <= len(indices) <= x.ndim, f"x is {x!r}, and there are {len(indices)} index tensors")
    for t in indices:
        rules.allowed(op, t.dtype is dtypes.int64, f"an index tensor is {t.dtype}; it must be int64")
        same = t.ndim == indices[0].ndim and all(a == b for a, b in zip(t.shape, indices[0].shape, strict=True))
        rules.need(op, same, f"index tensors are {indices}; they must have one shape")


@register
class Gather(Op):
    """x at positions: the index tensors, all of one shape I and already in range, address the leading axes of x.

    x: (n1..nk, *rest), k index tensors (*I) -> (*I, *rest)
    """

    name = "gather"
    holomorphic = False

    def infer(self, x: Type, *indices: Type) -> Type:
        return x.with_shape(indices[0].shape + x.shape[len(indices) :])

    def rule(self, x: Type, *indices: Type):
        _indices_fit(self, x, indices)

    def bounds(self, x: Type, *indices: Type):
        return {1 + k: (x.shape[k], k) for k in range(len(indices))}

    def grad(self, g, x, *indices):
        return (scatter_sum(F.zeros_like(x), g, *indices), *(None for _ in indices))


@register
class Scatter(LibraryOp):
    """base with updates written (set, add, max, min, mul) at the positions that index tensors give on its leading axes.

    base: (n1..nk, *rest), updates: (*I, *rest), k index tensors (*I) -> shape of base. Repeated positions: the last update
    wins for "set"; "add" adds in index order, so results do not depend on the number of threads.
    """

    name = "scatter"
    takes_complex = True
    routine = "scatter"
    may_fail = True
    mode: str

    @property
    def holomorphic(self):
        return self.mode == "mul"

    def infer(self, base: Type, updates: Type, *indices: Type) -> Type:
        if base.dtype.is_complex and self.mode in ("max", "min"):
            raise DTypeError("scatter", f"{self.mode} of {base.dtype}: complex numbers have no order")
        return base

    def rule(self, base: Type, updates: Type, *indices: Type):
        rules.one_of(self, "mode", self.mode, ("set", "add", "max", "min", "mul"))
        rules.allowed(self, base.dtype is updates.dtype, f"base is {base.dtype} and updates are {updates.dtype}")
        _indices_fit(self, base, indices)
        shape = indices[0].shape + base.shape[len(indices) :]
        fits = updates.ndim == len(shape) and all(a == b for a, b in zip(updates.shape, shape, strict=True))
        rules.need(self, fits, f"updates are {updates!r}; at these positions of {base!r} they must be {shape}")

    def bounds(self, base: Type, updates: Type, *indices: Type):
        return {2 + k: (base.shape[k], k) for k in range(len(indices))}

    def attributes(self, base, updates, *indices):
        return (len(indices), ("set", "add", "max", "min", "mul").index(self.mode)), ()

    def grad(self, g, base, updates, *indices, out):
        none = (None,) * len(indices)
        if self.mode == "add":
            return (g, Gather()(g, *indices), *none)
        if self.mode == "set":
            # Of updates to one position only the last counts: find which by scattering their numbers.
            number = _update_numbers(updates, indices)
            last = Gather()(
                Scatter("max")(F.full(_index_target(base, indices), -1, dtype=dtypes.int64), number, *indices), *indices
            )
            wins = _over_rest(cast(F.equal(number, last), g.dtype), updates)
            untouched = Scatter("set")(g, F.zeros_like(updates), *indices)
            return (untouched, Gather()(g, *indices) * wins, *none)
        if self.mode == "mul":
            return (*_product_grad(g, base, updates, indices), *none)
        # max, min: shared by all that attain the extremum
        base_hits = cast(F.equal(base, out), g.dtype)
        update_hits = cast(F.equal(updates, Gather()(out, *indices)), g.dtype)
        share = g / scatter_sum(base_hits, update_hits, *indices)
        return (base_hits * share, update_hits * Gather()(share, *indices), *none)


def scatter_in(mode: str, base: Value, updates: Value, *indices: Value) -> Value:
    return scatter_sum(base, updates, *indices) if mode == "add" else Scatter(mode)(base, updates, *indices)


def scatter_sum(base: Value, updates: Value, *indices: Value) -> Value:
    """Scatter("add") that adds 16-bit floats up in float32."""
    return cast(Scatter("add")(widen(base), widen(updates), *indices), base.dtype)


def _product_grad(g: Value, base: Value, updates: Value, indices) -> tuple[Value, Value]:
    """g times the product of the other factors at each position: what is left without zeros, unless another
    factor is 0."""
    zero, one = constant(0, base.dtype), constant(1, base.dtype)
    base_zero, update_zero = F.Equal()(base, zero), F.Equal()(updates, zero)
    product = Scatter("mul")(F.Where()(base_zero, one, base), F.Where()(update_zero, one, updates), *indices)
    zeros = Scatter("add")(cast(base_zero, base.dtype), cast(update_zero, base.dtype), *indices)

    def others(factor: Value, is_zero: Value, product: Value, zeros: Value) -> Value:
        rest = product / F.Where()(is_zero, one, factor)
        return F.Where()(F.Equal()(zeros, cast(is_zero, base.dtype)), rest, zero)

    at_updates = Gather()(g, *indices), Gather()(product, *indices), Gather()(zeros, *indices)
    return g * others(base, base_zero, product, zeros), at_updates[0] * others(updates, update_zero, *at_updates[1:])


def _index_target(base: Value, indices) -> tuple:
    return base.shape[: len(indices)]


def _update_numbers(updates: Value, indices) -> Value:
    """The flat number of each update, of the index shape."""
    shape = indices[0].shape
    total = 1
    for d in shape:
        total = total * d
    return Reshape(shape)(F.Iota((total,), 0, dtypes.int64)())


def _over_rest(x: Value, updates: Value) -> Value:
    return full_expand(Reshape(x.shape + (1,) * (updates.ndim - x.ndim))(x), updates.shape)


# -- helpers of the functions here and of getitem


def checked(index: Value, bound, axis: int, name: str, negative: bool = True) -> Value:
    """Index tensor in [0, bound): range checked, negative ones counted from the end, or refused where they are a mistake (numbers
    of segments and of nodes)."""
    if not index.dtype.is_integer:
        raise DTypeError(
            name, f"an index tensor is {index.dtype}; it must hold integers", fix="convert it: index.to(td.int64)"
        )
    index = CheckIndex(bound, axis, negative)(index)
    if not index.dtype.is_signed or not negative:
        return cast(index, dtypes.int64)
    index = cast(index, dtypes.int64)
    return F.where(F.less(index, constant(0, dtypes.int64)), F.add(index, constant(bound, dtypes.int64)), index)


def _front(x: Value, axes: tuple[int, ...]) -> Value:
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    order = axes + rest
    return x if order == tuple(range(x.ndim)) else Permute(order)(x)


def _to_back(x: Value, axes: tuple[int, ...]) -> Value:
    """Undo _front."""
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    order = axes + rest
    inverse = tuple(order.index(i) for i in range(x.ndim))
    return x if inverse == tuple(range(x.ndim)) else Permute(inverse)(x)


def _prepare_indices(name: str, x: Value, indices: list[Value], axes: tuple[int, ...]) -> list[Value]:
    shape = broadcast_shapes(name, *(i.shape for i in indices))
    return [full_expand(checked(i, x.shape[a], a, name), shape) for i, a in zip(indices, axes, strict=True)]


@op(internal=True)
def gather_at(x: Tensor, indices: Tensors, axes):
    """x at positions given by index tensors on some axes, as NumPy's advanced indexing: the axes of the (broadcast) index
    stand where the indexed axes stood if those are neighbours, in front otherwise.
    """
    indices = _prepare_indices("index", x, indices, axes)
    out = Gather()(_front(x, axes), *indices)
    neighbours = axes == tuple(range(axes[0], axes[0] + len(axes)))
    if neighbours and axes[0] > 0:
        k = indices[0].ndim
        out = Permute(tuple(range(k, k + axes[0])) + tuple(range(k)) + tuple(range(k + axes[0], out.ndim)))(out)
    return out


@op(internal=True)
def scatter_at(x: Tensor, indices: Tensors, axes, values: Written, mode="set"):
    """x with values put (set, add, max, min, mul) at positions given by index tensors on some axes; values broadcast to the
    shape that gather_at would give.
    """
    indices = _prepare_indices("index", x, indices, axes)
    front = _front(x, axes)
    index_shape = indices[0].shape
    k = len(index_shape)
    rest = front.shape[len(axes) :]
    values = as_dtype_value(values, x.dtype)
    neighbours = axes == tuple(range(axes[0], axes[0] + len(axes)))
    shape = rest[: axes[0]] + index_shape + rest[axes[0] :] if neighbours else index_shape + rest
    if broadcast_shapes("index_put", values.shape, shape) != shape:
        raise ShapeError(
            "index_put", f"values of shape {show_shape(values.shape)} do not fit positions of shape {show_shape(shape)}"
        )
    values = full_expand(values, shape)
    if neighbours and axes[0] > 0:
        values = Permute(
            tuple(range(axes[0], axes[0] + k)) + tuple(range(axes[0])) + tuple(range(axes[0] + k, values.ndim))
        )(values)
    return _to_back(scatter_in(mode, front, values, *indices), axes)


inplace(scatter_at)


@op(internal=True)
def copy_to(x: Tensor, source: Written):
    """source, converted and broadcast to x's dtype and shape."""
    value = as_dtype_value(source, x.dtype)
    if broadcast_shapes("copy_", value.shape, x.shape) != x.shape:
        raise ShapeError(
            "copy_", f"source is {show_shape(value.shape)} and does not broadcast to {show_shape(x.shape)}"
        )
    return F.Copy()(full_expand(value, x.shape))


inplace(copy_to, "copy_", Role(moves=True))


@op
def index_select(x: Tensor, axis, index: Tensor):
    """Slices of x along axis, in the order that a 1-d index gives.

    x: (*a, n, *b), index: (k) -> (*a, k, *b)

    >>> td.index_select(td.tensor([[1, 2], [3, 4]]), 1, td.tensor([1]))
    tensor([[2],
            [4]])
    """
    axis = normalize_axis("index_select", axis, x.ndim)
    if index.ndim > 1:
        raise ShapeError("index_select", f"index is {show_shape(index.shape)} and must be 1-d")
    if x.ndim == 0:
        if index.type.numel != 1:
            raise ShapeError(
                "index_select", f"x has no axes, so that index, {show_shape(index.shape)}, must have one element"
            )
        return Reshape(())(F.gather_at(Reshape((1,))(x), [Reshape((1,))(index)], (0,)))
    if index.ndim == 0:
        index = Reshape((1,))(index)
    return F.gather_at(x, [index], (axis,))


@op
def take(x: Tensor, index: Tensor, axis=None):
    """Elements along an axis at index positions (of any shape); without axis, x is flattened.

    >>> td.take(td.tensor([10, 20, 30]), td.tensor([2, 0]))
    tensor([30, 10])
    """
    if axis is None:
        return F.gather_at(Reshape((x.type.numel,))(x), [index], (0,))
    return F.gather_at(x, [index], (normalize_axis("take", axis, x.ndim),))


def along(name: str, x: Value, index: Value, axis: int) -> tuple[list[Value], tuple[int, ...]]:
    """Index tensors for all axes: `index` on one, its own position on the others."""
    if index.ndim != x.ndim:
        raise ShapeError(
            name,
            f"x is {show_shape(x.shape)} and index is {show_shape(index.shape)}; both need the same number of axes",
        )
    shape = index.shape
    indices = [
        checked(index, x.shape[a], a, name) if a == axis else F.Iota(shape, a, dtypes.int64)() for a in range(x.ndim)
    ]
    return indices, shape


@op
def gather(x: Tensor, axis, index: Tensor):
    """out[i, j] = x[index[i, j], j] for axis 0, and so on; index may be smaller than x on other axes.

    >>> td.gather(td.tensor([[1, 2], [3, 4]]), 1, td.tensor([[0], [1]]))
    tensor([[1],
            [4]])
    """
    axis = normalize_axis("gather", axis, x.ndim)
    if x.ndim == 0 and index.ndim == 1:
        return F.gather_at(Reshape((1,))(x), [index], (0,))
    if index.ndim != x.ndim and 0 in index.shape:
        return F.full(index.shape, 0, dtype=x.dtype)
    indices, shape = along("gather", x, index, axis)
    for a in range(x.ndim):
        if a != axis and shape[a] > x.shape[a]:
            raise ShapeError("gather", f"index {show_shape(shape)} is larger than x {show_shape(x.shape)} on axis {a}")
    return Gather()(x, *indices) if x.ndim else F.Copy()(x)


@op
def take_along_axis(x: Tensor, index: Tensor, axis=-1):
    """gather with x and index broadcast against each other on the other axes.

    >>> td.take_along_axis(td.tensor([[3, 1], [2, 4]]), td.tensor([[1], [0]]), axis=1)
    tensor([[1],
            [2]])
    """
    axis = normalize_axis("take_along_axis", axis, x.ndim)
    if index.ndim != x.ndim:
        raise ShapeError(
            "take_along_axis",
            f"x is {show_shape(x.shape)} and index is {show_shape(index.shape)}; both need the same number of axes",
        )
    shape = broadcast_shapes("take_along_axis", *(s[:axis] + (1,) + s[axis + 1 :] for s in (x.shape, index.shape)))
    x = full_expand(x, shape[:axis] + (x.shape[axis],) + shape[axis + 1 :])
    index = full_expand(index, shape[:axis] + (index.shape[axis],) + shape[axis + 1 :])
    return F.gather(x, axis, index)
