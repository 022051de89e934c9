"""Views that strides alone describe, and tensors laid out again. Eager tensors share memory; symbolic values have no strides, and
there the same elements are gathered."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes, hooks
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.ops.define import LibraryOp, op, public, register
from tandem.ops.movement import resolve_shape
from tandem.ops.prepare import normalize_axis, show


@register
class Contiguous(LibraryOp):
    """A copy that lies in memory in row-major order."""

    name = "contiguous"
    batching = "leading"
    takes_complex = True
    holomorphic = False
    routine = "copy"
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        return x

    def grad(self, g, x):
        return g


@op(internal=True)
def row_major(x: Tensor):
    """A copy of x in row-major order."""
    return Contiguous()(x)


def _sizes(shape) -> tuple:
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else tuple(shape)


def _integers(name: str, parameter: str, values) -> tuple[int, ...]:
    values = tuple(values) if isinstance(values, (tuple, list)) else (values,)
    for v in values:
        if isinstance(v, bool) or not hasattr(v, "__index__"):
            raise DTypeError(name, f"{parameter} has a {type(v).__name__}; it must be made of integers")
    return tuple(v.__index__() for v in values)


def view_strides(sizes, strides, shape) -> tuple | None:
    """Strides under which memory with these sizes and strides shows `shape`, or None if there are none."""
    if 0 in sizes:
        step, made = 1, []
        for n in reversed(shape):
            made.append(step)
            step *= max(n, 1)
        return tuple(reversed(made))
    # Runs of axes that lie in memory like one axis; each run is cut into axes of the result, from the back.
    made = [0] * len(shape)
    at = len(shape) - 1
    axes = [(n, s) for n, s in zip(sizes, strides, strict=True) if n != 1]
    while axes:
        n, step = axes.pop()
        while axes and axes[-1][1] == n * step:
            n *= axes.pop()[0]
        while at >= 0 and (n > 1 or shape[at] == 1):
            if n % shape[at]:
                return None
            made[at] = step
            step *= shape[at]
            n //= shape[at]
            at -= 1
        if n != 1:
            return None
    for i in range(at, -1, -1):
        made[i] = made[i + 1] * shape[i + 1] if i + 1 < len(shape) else 1
    return tuple(made)


@public(method=True)
def view(x: Tensor, *shape, dtype=None):
    """The same memory under another shape or dtype. An error where only a copy could do it; reshape copies then.

    >>> td.view(td.arange(6), (2, 3)).shape
    (2, 3)
    >>> td.view(td.tensor([1.0]), td.int32)
    tensor([1065353216], dtype=int32)
    """
    if dtype is not None and not shape:
        return _view_dtype(x, dtypes.as_dtype(dtype))
    if len(shape) == 1 and not isinstance(shape[0], (int, tuple, list)) and not hasattr(shape[0], "__index__"):
        return _view_dtype(x, dtypes.as_dtype(shape[0]))
    shape = _sizes(shape)
    if isinstance(x, Value):
        return F.reshape(x, shape)
    wanted = resolve_shape("view", _integers("view", "shape", shape), x.size)
    if view_strides(x.shape, x.strides, wanted) is None:
        raise ShapeError(
            "view",
            f"a tensor of shape {x.shape} and strides {x.strides} cannot be viewed as {wanted} without a copy",
            fix="use reshape",
        )
    return F.reshape(x, wanted)


def _view_dtype(x, dtype: dtypes.DType):
    if not isinstance(x, _runtime.Tensor):
        raise DTypeError("view", "a symbolic value cannot be viewed as another dtype")
    if dtype is x.dtype:
        return F.reshape(x, x.shape)
    if x.requires_grad and _runtime.grad_enabled():
        raise DTypeError(
            "view", f"x requires grad, and its bits as {dtype} have no gradient", fix="use x.detach().view(...)"
        )
    old, new = x.dtype.itemsize, dtype.itemsize
    if old == new:
        return _runtime.reinterpret(x, x.shape, x.strides, dtype)
    if x.ndim == 0:
        raise ShapeError("view", f"a 0-d tensor of {x.dtype} cannot be viewed as {dtype}: the element sizes differ")
    if x.strides[-1] != 1 and x.shape[-1] != 1:
        raise ShapeError(
            "view",
            f"the last axis must be dense in memory to view {x.dtype} as {dtype}; its stride is {x.strides[-1]}",
            fix="use x.contiguous()",
        )
    if (x.shape[-1] * old) % new or any((s * old) % new for s in x.strides[:-1]) or x._address() % new:
        raise ShapeError("view", f"axes of {x.shape[-1]} elements of {x.dtype} do not divide into {dtype}")
    shape = (*x.shape[:-1], x.shape[-1] * old // new)
    return _runtime.reinterpret(x, shape, (*(s * old // new for s in x.strides[:-1]), 1), dtype)


@public(method=True)
def view_as(x: Tensor, other: Tensor):
    """x.view(other.shape).

    >>> td.view_as(td.arange(4), td.zeros((2, 2))).shape
    (2, 2)
    """
    return view(x, other.shape)


@public(method=True)
def reshape_as(x: Tensor, other: Tensor):
    """x.reshape(other.shape).

    >>> td.reshape_as(td.arange(4), td.zeros((2, 2))).shape
    (2, 2)
    """
    return F.reshape(x, other.shape)


@public(method=True)
def expand_as(x: Tensor, other: Tensor):
    """x.expand(other.shape).

    >>> td.expand_as(td.tensor([1, 2]), td.zeros((3, 2))).shape
    (3, 2)
    """
    return F.expand(x, other.shape)


# -- strides of the caller's choice


@public(method=True)
def as_strided(x: Tensor, size, stride, storage_offset=None):
    """The elements of x's memory at storage_offset + sum(i * stride), as a tensor of shape `size`. A view.

    storage_offset counts from the start of the memory; it is x's own by default. Elements of the memory that are not x's get no
    gradient.

    >>> td.as_strided(td.arange(5), (3, 3), (1, 1))
    tensor([[0, 1, 2],
            [1, 2, 3],
            [2, 3, 4]])
    """
    size, stride = _integers("as_strided", "size", size), _integers("as_strided", "stride", stride)
    if len(size) != len(stride):
        raise ShapeError("as_strided", f"size {size} and stride {stride} differ in length")
    if any(n < 0 for n in size):
        raise ShapeError("as_strided", f"size {size} has a negative size")
    if isinstance(x, Value):
        return _gather_strided(x, size, stride, storage_offset or 0)
    offset = x.storage_offset() if storage_offset is None else int(storage_offset)
    return _strided(x, size, stride, offset)


def _strided(x, size, stride, offset: int):
    """The view, with history: its gradient is added up at the positions that it shows."""
    made = _runtime.alias(x, size, stride, offset)
    _runtime.set_view_base(made, x)
    if x.requires_grad and _runtime.grad_enabled():
        hooks.record_view("as_strided", x, made)
    return made


def _gather_windows(x: Value, axis, windows, size, step):
    if x.ndim == 0:
        return F.reshape(x, (size,))
    at = F.Iota((windows, size), 0, dtypes.int64)() * step + F.Iota((windows, size), 1, dtypes.int64)()
    return F.moveaxis(F.gather_at(x, [at], (axis,)), axis + 1, -1)


@op(internal=True)
def gather_windows(x: Tensor, axis, windows: Int, size, step):
    """A copy of windows of x that overlap, which nobody can write to."""
    return _gather_windows(x, axis, windows, size, step)


def _gather_strided(x: Value, size, stride, offset):
    """as_strided of a symbolic value, which counts as row-major."""
    position = F.full(size, offset, dtype=dtypes.int64)
    for axis, s in enumerate(stride):
        position = F.add(position, F.multiply(F.Iota(size, axis, dtypes.int64)(), s))
    return F.gather_at(F.ravel(x), [position], (0,))


@public(method=True)
def unfold(x: Tensor, axis, size, step):
    """Windows of `size` elements along an axis, one every `step`; the window's elements are a new last axis. A view.

    x: (*a, n, *b) -> (*a, (n - size) // step + 1, *b, size)

    >>> td.unfold(td.arange(5), 0, 3, 1)
    tensor([[0, 1, 2],
            [1, 2, 3],
            [2, 3, 4]])
    """
    axis = normalize_axis("unfold", axis, x.ndim)
    n = x.shape[axis] if x.ndim else 1
    if size < 0 or size > n:
        raise ShapeError("unfold", f"windows of {show(size)} elements do not fit axis {axis} of size {show(n)}")
    if step <= 0:
        raise ValueRangeError("unfold", f"step is {show(step)}; it must be at least 1")
    windows = (n - size) // step + 1
    if isinstance(x, Value):
        return _gather_windows(x, axis, windows, size, step)
    if x.ndim == 0:
        return _strided(x, (size,), (1,), x.storage_offset())
    if _runtime.pending(x):  # it has no memory yet, and need not get any
        if step < size or size == 0:
            return gather_windows(x, axis, windows, size, step)
        if windows * step <= n:
            return (
                F.moveaxis(x, axis, -1)[..., : windows * step]
                .unflatten(-1, (windows, step))[..., :size]
                .movedim(-2, axis)
            )
    shape = (*x.shape[:axis], windows, *x.shape[axis + 1 :], size)
    strides = (*x.strides[:axis], x.strides[axis] * step, *x.strides[axis + 1 :], x.strides[axis])
    return _strided(x, shape, strides, x.storage_offset())
