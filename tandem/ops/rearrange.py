"""Elements in other places and other numbers: flatten, move axes, roll, repeat, pad."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import DTypeError, IndexRangeError, ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import Dim, from_start, is_general, maximum, minimum, product
from tandem.ops import rules
from tandem.ops.create import on_device
from tandem.ops.define import LibraryOp, alias, as_tensor, method, op, public, register
from tandem.ops.join import Concat, at_least
from tandem.ops.movement import Embed, Expand, Permute, Reshape, permute, resolve_shape, take_slice, transpose
from tandem.ops.prepare import assigned, constant, full_expand, normalize_axis, show, show_shape

# -- axes


@op
def flatten(x: Tensor, start_axis=0, end_axis=-1):
    """Axes start_axis to end_axis merged into one. A view where memory allows it.

    x: (*a, n1, .., nk, *b) -> (*a, n1 * .. * nk, *b)

    >>> td.flatten(td.zeros((2, 3, 4)), 1).shape
    (2, 12)
    """
    if x.ndim == 0:
        normalize_axis("flatten", start_axis, 0), normalize_axis("flatten", end_axis, 0)
        return Reshape((1,))(x)
    first, last = normalize_axis("flatten", start_axis, x.ndim), normalize_axis("flatten", end_axis, x.ndim)
    if first > last:
        raise ValueRangeError("flatten", f"start_axis {start_axis} comes after end_axis {end_axis}")
    return Reshape(x.shape[:first] + (product(x.shape[first : last + 1]),) + x.shape[last + 1 :])(x)


@op
def ravel(x: Tensor):
    """All elements in row-major order, as a 1-d tensor. A view where memory allows it.

    >>> td.ravel(td.tensor([[1, 2], [3, 4]]))
    tensor([1, 2, 3, 4])
    """
    return Reshape((x.type.numel,))(x)


@op
def unflatten(x: Tensor, axis, sizes: Ints):
    """One axis cut into several of the given sizes; one may be -1. A view where memory allows it.

    >>> td.unflatten(td.zeros((2, 12)), 1, (3, -1)).shape
    (2, 3, 4)
    """
    axis = normalize_axis("unflatten", axis, x.ndim)
    if x.ndim == 0:
        raise ShapeError("unflatten", "a 0-d tensor has no axis to cut")
    sizes = resolve_shape("unflatten", sizes, x.shape[axis])
    return Reshape(x.shape[:axis] + sizes + x.shape[axis + 1 :])(x)


@op
def moveaxis(x: Tensor, source, destination):
    """Axes `source` moved to the positions `destination`; the others keep their order. A view.

    >>> td.moveaxis(td.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    sources = (source,) if isinstance(source, int) else tuple(source)
    targets = (destination,) if isinstance(destination, int) else tuple(destination)
    if len(sources) != len(targets):
        raise ValueRangeError("moveaxis", f"{len(sources)} axes cannot move to {len(targets)} positions")
    sources = [normalize_axis("moveaxis", a, x.ndim) for a in sources]
    targets = [normalize_axis("moveaxis", a, x.ndim) for a in targets]
    for what, axes in (("source", sources), ("destination", targets)):
        if len(set(axes)) != len(axes):
            raise ValueRangeError("moveaxis", f"{what} {tuple(axes)} names an axis twice")
    order = [a for a in range(x.ndim) if a not in sources]
    for target, a in sorted(zip(targets, sources, strict=True)):
        order.insert(target, a)
    return Permute(tuple(order) if x.ndim else ())(x)


@op
def rot90(x: Tensor, k=1, axes=(0, 1)):
    """x turned by 90 degrees k times, from the first of two axes towards the second. A copy, as PyTorch's is.

    >>> td.rot90(td.tensor([[1, 2], [3, 4]]))
    tensor([[2, 4],
            [1, 3]])
    """
    a, b = axes if len(axes) == 2 else (0, 0)
    a, b = normalize_axis("rot90", a, x.ndim), normalize_axis("rot90", b, x.ndim)
    if a == b or x.ndim < 2:
        raise ValueRangeError("rot90", f"axes {tuple(axes)} must be two different axes of the {x.ndim} there are")
    k = k % 4
    if k == 0:
        return F.clone(x)
    if k == 2:
        return F.flip(x, (a, b))
    return F.transpose(F.flip(x, b), a, b) if k == 1 else F.flip(F.transpose(x, a, b), b)


@op
def narrow(x: Tensor, axis, start: Int, length: Int):
    """`length` elements of one axis from start on; a negative start counts from the end. A view.

    >>> td.narrow(td.arange(6), 0, 2, 3)
    tensor([2, 3, 4])
    """
    axis = normalize_axis("narrow", axis, x.ndim)
    if x.ndim == 0:
        raise ShapeError("narrow", "a 0-d tensor has no axis to narrow")
    n = x.shape[axis]
    if not -n <= start <= n:
        raise IndexRangeError("narrow", f"start {show(start)} is out of range for axis {axis} with size {show(n)}")
    if is_general(start):
        start = from_start(start, n)
    elif start < 0:
        start = start + n
    if length < 0 or start + length > n:
        raise IndexRangeError(
            "narrow", f"{show(length)} elements from {show(start)} on are not within axis {axis} with size {show(n)}"
        )
    return take_slice(x, {axis: (start, 1, length)})


@op
def select(x: Tensor, axis, index: Int):
    """x at one index of an axis, without that axis. A view.

    >>> td.select(td.tensor([[1, 2], [3, 4]]), 1, 0)
    tensor([1, 3])
    """
    axis = normalize_axis("select", axis, x.ndim)
    if x.ndim == 0:
        raise IndexRangeError("select", "a 0-d tensor has no axis to select from")
    n = x.shape[axis]
    if not -n <= index < n:
        raise IndexRangeError("select", f"index {show(index)} is out of range for axis {axis} with size {show(n)}")
    index = from_start(index, n) if is_general(index) else index + n if index < 0 else index
    return Reshape(x.shape[:axis] + x.shape[axis + 1 :])(take_slice(x, {axis: (index, 1, 1)}))


def _all_at_least(ndim: int, tensors):
    single = len(tensors) == 1 and not isinstance(tensors[0], (tuple, list))
    given = tensors[0] if len(tensors) == 1 and not single else tensors
    made = tuple(at_least(as_tensor(f"atleast_{ndim}d", "a tensor", t), ndim) for t in given)
    return made[0] if single else made


@public
def atleast_1d(*tensors):
    """Each tensor with at least one axis.

    >>> td.atleast_1d(td.tensor(3.0))
    tensor([3.])
    """
    return _all_at_least(1, tensors)


@public
def atleast_2d(*tensors):
    """Each tensor with at least two axes; new ones come first.

    >>> td.atleast_2d(td.tensor([1, 2]))
    tensor([[1, 2]])
    """
    return _all_at_least(2, tensors)


@public
def atleast_3d(*tensors):
    """Each tensor with at least three axes.

    >>> td.atleast_3d(td.tensor([1, 2])).shape
    (1, 2, 1)
    """
    return _all_at_least(3, tensors)


# -- moving along and repeating


@register
class Roll(LibraryOp):
    """Elements moved by shifts[i] places along axes[i], each axis once; what leaves at the end comes back at the start."""

    name = "roll"
    takes_complex = True
    holomorphic = False
    routine = "roll"
    only_on = "cpu"
    axes: tuple
    shifts: tuple
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        return x

    def rule(self, x: Type):
        rules.sizes(self, "shifts", self.shifts, len(self.axes), -(2**63))

    def attributes(self, x):
        return (len(self.axes), *self.axes, *self.shifts), ()

    def grad(self, g, x):
        return Roll(self.axes, tuple(-s for s in self.shifts))(g)

    def composed(self, x):
        for axis, shift in zip(self.axes, self.shifts, strict=True):
            n = x.shape[axis]
            shift = shift % n if n != 0 else 0
            if shift != 0:
                parts = (n - shift, 1, shift), (0, 1, n - shift)
                x = Concat(axis)(*(take_slice(x, {axis: part}) for part in parts))
        return F.Copy()(x)


@op
def roll(x: Tensor, shift: Ints, axis=None):
    """Elements moved by `shift` places along axes; what leaves at the end comes back at the start. Without axis, x counts flat.

    >>> td.roll(td.arange(5), 2)
    tensor([3, 4, 0, 1, 2])
    """
    if axis is None:
        if isinstance(shift, (tuple, list)):
            if len(shift) != 1:
                raise ValueRangeError("roll", f"{len(shift)} shifts need as many axes")
            shift = shift[0]
        return Reshape(x.shape)(Roll((0,), (shift,))(Reshape((x.type.numel,))(x)))
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise ValueRangeError("roll", f"{len(shifts)} shifts were given for {len(axes)} axes")
    if x.ndim == 0:
        raise ShapeError("roll", "a 0-d tensor has no axis to roll along")
    total: dict[int, Dim] = {}
    for a, s in zip(axes, shifts, strict=True):
        a = normalize_axis("roll", a, x.ndim)
        total[a] = total.get(a, 0) + s
    return Roll(tuple(total), tuple(total.values()))(x) if total else F.Copy()(x)


def _repeated(x: Value, times: tuple) -> Value:
    """x, of as many axes as times, laid out times[i] times along axis i."""
    # Copied while the repetitions are axes of their own: the result is a view of that, and no index is divided.
    apart, shape = [], []
    for n, t in zip(x.shape, times, strict=True):
        apart += [1, n]
        shape += [t, n]
    wide = F.Copy()(Expand(tuple(shape))(Reshape(tuple(apart))(x)))
    return Reshape(tuple(t * n for n, t in zip(x.shape, times, strict=True)))(wide)


def _checked_times(name: str, times) -> tuple:
    times = (times,) if not isinstance(times, (tuple, list)) else tuple(times)
    for t in times:
        if t < 0:
            raise ValueRangeError(name, f"repetitions {show_shape(times)} contain a negative number")
    return times


@op(variadic="repetitions")
def tile(x: Tensor, repetitions: Ints):
    """x laid out repetitions[i] times along axis i; missing repetitions are 1, missing axes have size 1.

    >>> td.tile(td.tensor([1, 2]), (2, 2))
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    times = _checked_times("tile", repetitions)
    ndim = max(len(times), x.ndim)
    return _repeated(Reshape((1,) * (ndim - x.ndim) + x.shape)(x), (1,) * (ndim - len(times)) + times)


@op(name="repeat", hidden=True, variadic="repetitions")
def _repeat_method(x: Tensor, repetitions: Ints):
    """As in PyTorch: like tile, but there must be a number of repetitions for every axis. (td.repeat is NumPy's.)"""
    times = _checked_times("repeat", repetitions)
    if len(times) < x.ndim:
        raise ShapeError(
            "repeat",
            f"{len(times)} repetitions for a tensor of shape {show_shape(x.shape)}; at least {x.ndim} are needed",
            fix="give one for every axis, or use tile",
        )
    return _repeated(Reshape((1,) * (len(times) - x.ndim) + x.shape)(x), times)


method(_repeat_method, name="repeat")


@op(internal=True)
def repeat_each(x: Tensor, repeats: Int, axis=None):
    """Every element repeated along an axis; without axis, x is flattened."""
    if axis is None:
        x, axis = Reshape((x.type.numel,))(x), 0
    elif x.ndim == 0:
        normalize_axis("repeat_interleave", axis, 0)
        x, axis = Reshape((1,))(x), 0
    axis = normalize_axis("repeat_interleave", axis, x.ndim)
    if repeats < 0:
        raise ValueRangeError("repeat_interleave", f"{show(repeats)} repeats; the number cannot be negative")
    before, n, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    one = Reshape((*before, n, 1, *after))(x)
    # A row of few equal elements is slower to write than as many strided copies.
    if not is_general(repeats) and 1 < repeats <= 8 and not after:
        wide = Concat(axis + 1)(*[one] * int(repeats))
    else:
        wide = F.Copy()(Expand((*before, n, repeats, *after))(one))
    return Reshape((*before, n * repeats, *after))(wide)


@public(method=True)
def repeat_interleave(x: Tensor, repeats, axis=None, *, output_size=None):
    """Every element repeated along an axis: `repeats` times, or as many times as a 1-d tensor of repeats says for each.
    output_size, the size of that axis, is known without being told.

    >>> td.repeat_interleave(td.tensor([1, 2]), 2)
    tensor([1, 1, 2, 2])
    >>> td.repeat_interleave(td.tensor([1, 2]), td.tensor([1, 3]))
    tensor([1, 2, 2, 2])
    """
    if not isinstance(repeats, (_runtime.Tensor, list, tuple)) and not hasattr(repeats, "tolist"):
        return F.repeat_each(x, repeats, axis)
    import numpy

    integers = isinstance(repeats, _runtime.Tensor) and repeats.dtype.is_integer  # also where there are none to show it
    times = numpy.asarray(
        repeats.tolist() if hasattr(repeats, "tolist") else repeats, dtype="int64" if integers else None
    )
    if times.ndim > 1 or times.dtype.kind not in "iu":
        raise DTypeError(
            "repeat_interleave",
            f"repeats is a {times.ndim}-d tensor of {times.dtype}; it must hold integers on one axis",
        )
    if times.size and times.min() < 0:
        raise ValueRangeError("repeat_interleave", f"repeats contains {times.min()}; numbers cannot be negative")
    if times.size == 1:
        return F.repeat_each(x, int(times.reshape(())), axis)
    if axis is None:
        x, axis = F.ravel(x), 0
    axis = normalize_axis("repeat_interleave", axis, x.ndim)
    if times.size != (x.shape[axis] if x.ndim else 1):
        raise ShapeError("repeat_interleave", f"{times.size} repeats for an axis of size {show(x.shape[axis])}")
    positions = _runtime.from_numpy(numpy.repeat(numpy.arange(times.size), times))
    return F.index_select(x, axis, on_device(positions, getattr(x, "device", None)))


@public
def repeat(x: Tensor, repeats, axis=None):
    """Every element repeated, as in NumPy and the Array API; the same as repeat_interleave. The method x.repeat(2, 3) is PyTorch's,
    which lays out the whole tensor several times, as tile does.

    >>> td.repeat(td.tensor([1, 2]), 2)
    tensor([1, 1, 2, 2])
    """
    return repeat_interleave(x, repeats, axis)


# -- padding


_NUMPY_MODES = {"edge": "replicate", "wrap": "circular"}


@public(method=True)
def pad(x: Tensor, pad=None, mode="constant", value=None, *, pad_width=None, constant_values=None):
    """x with elements added (or, where pad is negative, taken) at the ends of its axes.

    pad is (before, after) of the last axis, then of the one before it, and so on, as in PyTorch; or, as in NumPy, a pair for every
    axis from the first on, ((before, after), ...). pad_width is NumPy's alone: also one number or one pair for all axes. mode:
    "constant" (value, 0 by default), "reflect" (mirrored without the edge), "symmetric" (with it), "replicate" or "edge",
    "circular" or "wrap" (from the other end).

    >>> td.pad(td.tensor([1, 2, 3]), (1, 2))
    tensor([0, 1, 2, 3, 0, 0])
    >>> td.pad(td.tensor([1, 2, 3]), (2, 1), mode="reflect")
    tensor([3, 2, 1, 2, 3, 2])
    >>> td.pad(td.tensor([[1, 2]]), ((0, 1), (1, 0)))
    tensor([[0, 1, 2],
            [0, 0, 0]])
    """
    if (pad is None) == (pad_width is None):
        raise ValueRangeError("pad", "give either pad or pad_width")
    widths = pad if pad_width is None else pad_width
    nested = isinstance(widths, (tuple, list)) and len(widths) > 0 and isinstance(widths[0], (tuple, list))
    if nested or pad_width is not None:
        pairs = [tuple(w) for w in widths] if nested else [_both(widths)] * x.ndim
        pairs = pairs * x.ndim if len(pairs) == 1 else pairs
        if len(pairs) != x.ndim or any(len(p) != 2 for p in pairs):
            raise ShapeError(
                "pad", f"{len(pairs)} pairs (before, after) were given for the {x.ndim} axes of {show_shape(x.shape)}"
            )
        widths = tuple(n for p in reversed(pairs) for n in p)
    return _pad(x, widths, _NUMPY_MODES.get(mode, mode), value if constant_values is None else constant_values)


def _both(width) -> tuple:
    return tuple(width) if isinstance(width, (tuple, list)) else (width, width)


@op(name="pad", hidden=True)
def _pad(x: Tensor, pad: Ints, mode, value: Written | None):
    pads = (pad,) if not isinstance(pad, (tuple, list)) else tuple(pad)
    if len(pads) % 2 or len(pads) > 2 * x.ndim:
        raise ShapeError(
            "pad",
            f"pad has {len(pads)} numbers for a tensor of shape {show_shape(x.shape)}",
            fix=f"give (before, after) for the last axis, the one before it, ...: at most {2 * x.ndim} numbers",
        )
    widths = {x.ndim - 1 - i: (pads[2 * i], pads[2 * i + 1]) for i in range(len(pads) // 2)}
    for axis, (before, after) in widths.items():
        if x.shape[axis] + before + after < 0:
            raise ShapeError(
                "pad",
                f"axis {axis} of size {show(x.shape[axis])} cannot lose {show(-before)} and {show(-after)} elements",
            )
    if mode == "constant":
        return _pad_constant(x, widths, value)
    if mode not in ("reflect", "symmetric", "replicate", "circular"):
        raise ValueRangeError(
            "pad", f"mode is {mode!r}; it must be 'constant', 'reflect', 'symmetric', 'replicate' or 'circular'"
        )
    if value is not None:
        raise ValueRangeError("pad", f"a value was given, but mode {mode!r} takes its elements from x")
    result = x
    for axis, (before, after) in widths.items():
        result = _pad_axis(result, axis, before, after, mode)
    return F.Copy()(result) if result is x else result


def _crop(x: Value, axis: int, before: Dim, after: Dim) -> tuple[Value, Dim, Dim]:
    """x without what negative pads take away, and the pads that are left to add."""
    start = -before if before < 0 else 0
    stop = x.shape[axis] + after if after < 0 else x.shape[axis]
    if before < 0 or after < 0:
        # more may go at one end than there is: the other end then adds to an empty tensor
        size = stop - start
        if size < 0:
            start, size = 0, 0
            return take_slice(x, {axis: (start, 1, size)}), 0, before + after + x.shape[axis]
        x = take_slice(x, {axis: (start, 1, size)})
    return x, before if before > 0 else 0, after if after > 0 else 0


def _cut_ends(x: Value, axis: int, before: Dim, after: Dim) -> Value:
    """x without what negative pads take away, of sizes in general."""
    n = x.shape[axis]
    start = minimum(maximum(-before, 0), n)
    size = maximum(n + minimum(after, 0) - start, 0)
    return take_slice(x, {axis: (start, 1, size)})


def _pad_constant(x: Value, widths: dict, value) -> Value:
    starts, shape = [0] * x.ndim, list(x.shape)
    inner = x
    for axis, (before, after) in widths.items():
        if is_general(before, after, x.shape[axis]):
            shape[axis] = x.shape[axis] + before + after
            inner = _cut_ends(inner, axis, before, after)
            starts[axis] = minimum(maximum(before, 0), shape[axis])
            continue
        inner, before, after = _crop(inner, axis, before, after)
        starts[axis] = before
        shape[axis] = inner.shape[axis] + before + after
    if all(a is b for a, b in zip(shape, inner.shape, strict=True)):
        return F.Copy()(inner)
    embed = Embed(tuple(starts), (1,) * x.ndim, tuple(shape))
    if value is None:
        return embed(inner)
    inside = embed(full_expand(constant(True, dtypes.bool_), inner.shape))
    return F.Where()(inside, embed(inner), assigned("pad", value, x.dtype))


def _pad_axis(x: Value, axis: int, before: Dim, after: Dim, mode: str) -> Value:
    if mode in ("replicate", "reflect") and ((before < 0 and after > 0) or (before > 0 and after < 0)):
        # What one end adds is of the whole tensor: the other may take all of it away.
        x = _pad_axis(x, axis, before if before > 0 else 0, after if after > 0 else 0, mode)
        return _crop(x, axis, before if before < 0 else 0, after if after < 0 else 0)[0]
    x, before, after = _crop(x, axis, before, after)
    n = x.shape[axis]
    limit = {"reflect": n - 1, "symmetric": n, "circular": n, "replicate": None}[mode]
    if limit is None:
        if n == 0 and not (before == 0 and after == 0):
            raise ShapeError("pad", f"axis {axis} is empty: there is no edge to replicate")
    else:
        for width in (before, after):
            if width > limit and not (isinstance(width, int) and width == 0):
                raise ShapeError(
                    "pad",
                    f"{mode} padding by {show(width)} needs more than the {show(n)} elements of axis {axis}: at "
                    f"most {show(limit)}",
                )
    parts = [x]
    if before > 0:
        parts.insert(0, _border(x, axis, before, mode, at_start=True))
    if after > 0:
        parts.append(_border(x, axis, after, mode, at_start=False))
    return Concat(axis)(*parts) if len(parts) > 1 else x


def _border(x: Value, axis: int, width: Dim, mode: str, at_start: bool) -> Value:
    n = x.shape[axis]
    if mode == "replicate":
        edge = take_slice(x, {axis: (0 if at_start else n - 1, 1, 1)})
        return Expand(x.shape[:axis] + (width,) + x.shape[axis + 1 :])(edge)
    if mode == "circular":
        return take_slice(x, {axis: (n - width if at_start else 0, 1, width)})
    edge = 1 if mode == "symmetric" else 0
    return take_slice(x, {axis: (width - edge if at_start else n - 2 + edge, -1, width)})


alias("movedim", moveaxis)
alias("permute_dims", permute)
alias("swapaxes", transpose)
alias("swapdims", transpose)
