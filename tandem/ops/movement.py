"""Rearranging elements: reshape, permute, broadcast, slice, pad and what is built from them.

Note [Movement]
Each movement primitive is a map from output index to input index. On a tensor in memory most of them are views (strides and an
offset); inside a fused kernel they are index arithmetic. `Pad` and some reshapes cannot be views and are then computed.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.errors import ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import Dim, is_general, product
from tandem.ops import rules
from tandem.ops.define import Movement, alias, as_tensor, method, op, public, register
from tandem.ops.prepare import broadcast_shapes as common_shape
from tandem.ops.prepare import full_expand, normalize_axes, normalize_axis, show, show_shape
from tandem.sizes import Size


def root(value: Value) -> Value:
    """What a chain of movements looks at."""
    while isinstance(value.op, Movement) and value.node.inputs:
        value = value.node.inputs[0]
    return value


@register
class Reshape(Movement):
    """The same elements in row-major order under another shape. The caller has made sizes agree."""

    name = "reshape"
    shape: tuple
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        return x.with_shape(self.shape)

    def rule(self, x: Type):
        rules.sizes(self, "shape", self.shape)
        rules.need(self, product(self.shape) == x.numel, f"x is {x!r}; {self.shape} has another number of elements")

    def grad(self, g, x):
        return Reshape(x.shape)(g)


@register
class Permute(Movement):
    """Axis i of the output is axis axes[i] of the input."""

    name = "permute"
    axes: tuple
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        return x.with_shape(tuple(x.shape[a] for a in self.axes))

    def rule(self, x: Type):
        rules.need(self, len(self.axes) == x.ndim, f"x is {x!r}; axes are {self.axes}, and must be all of its axes")

    def grad(self, g, x):
        inverse = [0] * len(self.axes)
        for i, a in enumerate(self.axes):
            inverse[a] = i
        return Permute(tuple(inverse))(g)


@register
class Expand(Movement):
    """Repeats axes of size 1; the rank stays. Which axes: those where the input has 1 and `shape` is something else."""

    name = "expand"
    shape: tuple
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        return x.with_shape(self.shape)

    def rule(self, x: Type):
        rules.sizes(self, "shape", self.shape, x.ndim)
        fits = all(a is b or a == 1 or a == b for a, b in zip(x.shape, self.shape, strict=True))
        rules.need(self, fits, f"x is {x!r}; only axes of size 1 become longer, and the shape is {self.shape}")

    def grad(self, g, x):
        axes = tuple(i for i, (a, b) in enumerate(zip(x.shape, self.shape, strict=True)) if a is not b and a == 1)
        return F.Reduce("sum", axes)(g) if axes else g


def _places_fit(op, shape: tuple, count: tuple):
    """Whether start + i * step for i below `count` lies in `shape` on every axis."""
    rules.need(op, len(op.starts) == len(op.steps) == len(shape), f"starts and steps must be {len(shape)} each")
    rules.sizes(op, "starts", op.starts, len(shape), -(2**63))
    rules.sizes(op, "steps", op.steps, len(shape), -(2**63))
    for start, step, m, n in zip(op.starts, op.steps, count, shape, strict=True):
        if m is n and same_number(start, 0) and same_number(step, 1):
            continue
        if m == 0:
            continue
        text = f"{m} elements from {start} in steps of {step} do not lie within {n}"
        rules.need(op, start >= 0 and start < n, text)
        if m == 1:
            continue
        # steps first: what follows must not overflow where sizes are symbolic
        rules.need(op, step != 0 and step <= n and -step <= n and m <= n, text)
        last = start + (m - 1) * step
        rules.need(op, last >= 0 and last < n, text)


def same_number(d, n: int) -> bool:
    return type(d) is int and d == n


@register
class Slice(Movement):
    """out[i] = x[start + i * step] on every axis, with `sizes` elements each. The caller keeps it in range;
    steps may be negative."""

    name = "slice"
    starts: tuple
    steps: tuple
    sizes: tuple
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        return x.with_shape(self.sizes)

    def rule(self, x: Type):
        rules.sizes(self, "sizes", self.sizes, x.ndim)
        _places_fit(self, x.shape, self.sizes)

    def grad(self, g, x):
        return Embed(self.starts, self.steps, x.shape)(g)


@register
class Embed(Movement):
    """The transpose of Slice: zeros of `shape`, with x[i] at start + i * step on every axis."""

    name = "embed"
    starts: tuple
    steps: tuple
    shape: tuple
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        return x.with_shape(self.shape)

    def rule(self, x: Type):
        rules.sizes(self, "shape", self.shape, x.ndim)
        _places_fit(self, self.shape, x.shape)

    def grad(self, g, x):
        return Slice(self.starts, self.steps, x.shape)(g)


@register
class Diagonal(Movement):
    """out[..., i] = x[..., i, i]; the last two axes have one size."""

    name = "diagonal"
    batching = "leading"
    takes = "?[*s,n,n]"

    def infer(self, x: Type) -> Type:
        return x.with_shape(x.shape[:-1])

    def grad(self, g, x):
        lead, n = g.shape[:-1], g.shape[-1]
        ahead = len(lead)
        flat = Embed((0,) * (ahead + 1), (1,) * ahead + (n + 1,), (*lead, n * n))(g)
        return Reshape((*lead, n, n))(flat)


# -- functions


def resolve_shape(name: str, shape, numel: Dim) -> tuple[Dim, ...]:
    """shape with one -1 worked out, checked against the number of elements."""
    shape = (shape,) if not isinstance(shape, (tuple, list)) else tuple(shape)
    unknown = [i for i, d in enumerate(shape) if d == -1]
    if len(unknown) > 1:
        raise ShapeError(name, f"shape {show_shape(shape)} has more than one -1", fix="leave at most one size open")
    for d in shape:
        if d < -1:
            raise ShapeError(name, f"shape {show_shape(shape)} has the negative size {show(d)}")
    if unknown:
        rest = product(d for i, d in enumerate(shape) if i != unknown[0])
        if rest == 0 or numel % rest != 0:
            raise ShapeError(
                name,
                f"{show(numel)} elements do not fill shape {show_shape(shape)}: {show(rest)} does not divide "
                f"{show(numel)}",
            )
        shape = shape[: unknown[0]] + (numel // rest,) + shape[unknown[0] + 1 :]
    elif product(shape) != numel:
        raise ShapeError(
            name,
            f"{show(numel)} elements do not fit shape {show_shape(shape)}, which holds {show(product(shape))}",
            fix="make the product of the sizes equal, or leave one open with -1",
        )
    return shape


@op(name="reshape", hidden=True, variadic="shape")
def _reshape(x: Tensor, shape: Ints):
    """The same elements in row-major order under another shape; one size may be -1. A view where memory allows it."""
    return Reshape(resolve_shape("reshape", shape, x.type.numel))(x)


method(_reshape, name="reshape")


@public
def reshape(x, shape, *, copy: bool | None = None):
    """The same elements in row-major order under another shape; one size may be -1. A view where memory allows it;
    copy=True always copies, copy=False never does and raises where it would have to.

    x: (*s) -> shape

    >>> td.reshape(td.arange(6), (2, -1))
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    if copy is None:
        return _reshape(x, shape)
    x = as_tensor("reshape", "x", x)
    if copy:
        return F.clone(_reshape(x, shape))
    return F.view(x, shape)


@op(variadic="axes")
def permute(x: Tensor, axes):
    """Axes in another order: axis i of the result is axis axes[i] of x. A view.

    >>> td.permute(td.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    axes = tuple(normalize_axis("permute", a, x.ndim) for a in axes)
    if sorted(axes) != list(range(x.ndim)):
        raise ValueRangeError("permute", f"axes {axes} must name each of the {x.ndim} axes once")
    return Permute(axes)(x)


@op
def transpose(x: Tensor, axis0, axis1):
    """Axes axis0 and axis1 swapped. A view.

    >>> td.transpose(td.zeros((2, 3)), 0, 1).shape
    (3, 2)
    """
    if x.ndim == 0:
        normalize_axis("transpose", axis0, 0), normalize_axis("transpose", axis1, 0)
        return Permute(())(x)
    axes = list(range(x.ndim))
    a, b = normalize_axis("transpose", axis0, x.ndim), normalize_axis("transpose", axis1, x.ndim)
    axes[a], axes[b] = axes[b], axes[a]
    return Permute(tuple(axes))(x)


@op
def matrix_transpose(x: Tensor):
    """The last two axes swapped. A view.

    x: (*b, m, n) -> (*b, n, m)

    >>> td.matrix_transpose(td.zeros((4, 2, 3))).shape
    (4, 3, 2)
    """
    if x.ndim < 2:
        raise ShapeError("matrix_transpose", f"x has {x.ndim} axes; at least 2 are needed")
    axes = tuple(range(x.ndim - 2)) + (x.ndim - 1, x.ndim - 2)
    return Permute(axes)(x)


@op(variadic="shape")
def expand(x: Tensor, shape: Ints):
    """x broadcast to shape; -1 keeps a size. A view that repeats memory.

    >>> td.expand(td.tensor([[1], [2]]), (2, 3))
    tensor([[1, 1, 1],
            [2, 2, 2]])
    """
    shape = (shape,) if not isinstance(shape, (tuple, list)) else tuple(shape)
    if len(shape) < x.ndim:
        raise ShapeError("expand", f"x has {x.ndim} axes, shape {show_shape(shape)} only {len(shape)}")
    offset = len(shape) - x.ndim
    target = []
    for i, d in enumerate(shape):
        if d == -1:
            if i < offset:
                raise ShapeError("expand", f"-1 at axis {i} of shape {show_shape(shape)}, where x has no axis")
            d = x.shape[i - offset]
        elif d < 0:
            raise ShapeError("expand", f"shape {show_shape(shape)} has the negative size {show(d)}")
        elif i >= offset and not (x.shape[i - offset] == 1 or x.shape[i - offset] == d):
            raise ShapeError(
                "expand",
                f"axis {i - offset} of x has size {show(x.shape[i - offset])} and cannot become {show(d)}",
                fix="only axes of size 1 can be expanded; use tile to repeat elements",
            )
        target.append(d)
    made = full_expand(x, tuple(target))
    return F.Reshape(x.shape)(x) if made is x else made  # a view, as always


alias("broadcast_to", expand)


@op
def squeeze(x: Tensor, axis=None):
    """x without axes of size 1: those named by axis, or all of them. A view. An axis that is named must have size 1; the method
    x.squeeze(axis) is PyTorch's and leaves other axes as they are.

    >>> td.squeeze(td.zeros((1, 3, 1))).shape
    (3,)
    """
    if axis is not None:
        for a in normalize_axes("squeeze", axis, x.ndim):
            if x.shape[a] != 1:
                raise ShapeError(
                    "squeeze",
                    f"axis {a} of x {show_shape(x.shape)} has size {show(x.shape[a])}; only axes of size 1 can go",
                    fix="use x.squeeze(axis), which leaves such axes as they are",
                )
    return _squeezed(x, axis)


@op(name="squeeze", hidden=True)
def _squeeze_method(x: Tensor, axis=None):
    """As in PyTorch: x without axes of size 1, all of them or those of the named ones that have size 1. A view."""
    return _squeezed(x, axis)


method(_squeeze_method, name="squeeze")


def _squeezed(x: Value, axis) -> Value:
    axes = normalize_axes("squeeze", axis, x.ndim)
    return Reshape(tuple(d for i, d in enumerate(x.shape) if not (i in axes and d == 1)))(x)


@op
def unsqueeze(x: Tensor, axis):
    """x with new axes of size 1 at the given positions of the result. A view.

    >>> td.unsqueeze(td.zeros((3,)), 0).shape
    (1, 3)
    """
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    ndim = x.ndim + len(axes)
    normal = normalize_axes("unsqueeze", axes, ndim)
    rest = iter(x.shape)
    return Reshape(tuple(1 if i in normal else next(rest) for i in range(ndim)))(x)


alias("expand_dims", unsqueeze)


@op(internal=True)
def slice_axis(x: Tensor, axis, start: Int, size: Int, step: Int = 1):
    """size elements of one axis, from start on, every step-th; all in range. A view."""
    axis = normalize_axis("slice_axis", axis, x.ndim)
    if is_general(start, size, step):
        return take_slice(x, {axis: (start, step, size)})
    if size < 0:
        raise ValueRangeError("slice_axis", f"size is {show(size)}; it must not be negative")
    if size == 0:
        start = 0
    last = start + (size - 1) * step
    if size > 0 and not (0 <= start < x.shape[axis] and 0 <= last < x.shape[axis]):
        raise ValueRangeError(
            "slice_axis",
            f"elements {show(start)} to {show(last)} are not all within axis {axis} of size {show(x.shape[axis])}",
        )
    return take_slice(x, {axis: (start, step, size)})


def take_slice(x: Value, ranges: dict[int, tuple[Dim, Dim, Dim]]) -> Value:
    """x restricted to (start, step, size) on some axes."""
    starts, steps, sizes = [], [], []
    for i, d in enumerate(x.shape):
        start, step, size = ranges.get(i, (0, 1, d))
        starts.append(start)
        steps.append(step)
        sizes.append(size)
    return Slice(tuple(starts), tuple(steps), tuple(sizes))(x)


@op(variadic="axis")
def flip(x: Tensor, axis=None):
    """Elements in reverse order along the given axes (all by default). A copy, as PyTorch's is.

    >>> td.flip(td.arange(3))
    tensor([2, 1, 0])
    """
    axes = normalize_axes("flip", axis, x.ndim)
    return F.clone(take_slice(x, {a: (x.shape[a] - 1, -1, x.shape[a]) for a in axes if x.shape[a] > 0}))


@public
def broadcast_shapes(*shapes):
    """The shape that shapes broadcast to.

    >>> td.broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    return Size(common_shape("broadcast_shapes", *((s,) if isinstance(s, int) else tuple(s) for s in shapes)))


@public
def broadcast_tensors(*tensors):
    """All tensors expanded to their common shape. Views.

    >>> [t.shape for t in td.broadcast_tensors(td.zeros((3, 1)), td.zeros(4))]
    [(3, 4), (3, 4)]
    """
    tensors = [as_tensor("broadcast_tensors", "a tensor", t) for t in tensors]
    shape = common_shape("broadcast_tensors", *(t.shape for t in tensors))
    return tuple(F.expand(t, shape) for t in tensors)


alias("broadcast_arrays", broadcast_tensors)
