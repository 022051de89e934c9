"""x[key] and x[key] = value, by NumPy's rules."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import DTypeError, IndexRangeError, ShapeError
from tandem.graph.ir import Value
from tandem.graph.symbolic import Dim, ceildiv, maximum
from tandem.ops.define import op
from tandem.ops.movement import take_slice
from tandem.ops.prepare import show, show_shape

# Note [Index patterns]
# A basic key (ints, slices, None, ...) is split into a pattern, which the plan is made for, and its numbers, which are inputs:
# x[2:5] and x[3:9] share one plan. Letters: i an int, : a full slice, n None, e an ellipsis, and for other slices one of
# A..G whose bits say which of start, stop, step are given.


@op
def index_basic(x: Tensor, pattern, numbers: Ints):
    """x[...] with ints, slices, None and an ellipsis, as a pattern and its numbers; see Note [Index patterns]. A view.

    >>> td.index_basic(td.arange(6), "A", (4,))
    tensor([4, 5])
    """
    numbers = iter(numbers)
    given = sum(c not in "ne" for c in pattern)
    if given > x.ndim:
        raise IndexRangeError("getitem", f"{given} indices for a tensor of shape {show_shape(x.shape)}")
    if "e" not in pattern:
        pattern += "e"
    ranges: dict[int, tuple[Dim, Dim, Dim]] = {}
    shape: list[Dim] = []
    axis = 0
    for c in pattern:
        if c == "n":
            shape.append(1)
        elif c == "e":
            for _ in range(x.ndim - given):
                shape.append(x.shape[axis])
                axis += 1
        elif c == ":":
            shape.append(x.shape[axis])
            axis += 1
        elif c == "i":
            ranges[axis] = (_normal_int(next(numbers), x.shape[axis], axis), 1, 1)
            axis += 1
        else:
            bits = ord(c) - ord("A") + 1
            start, stop, step = (next(numbers) if bits & bit else None for bit in (1, 2, 4))
            ranges[axis] = _normal_slice(start, stop, step, x.shape[axis])
            shape.append(ranges[axis][2])
            axis += 1
    if ranges:
        x = take_slice(x, ranges)
    return F.Reshape(tuple(shape))(x)


def _normal_int(i: Dim, n: Dim, axis: int) -> Dim:
    if not -n <= i < n:
        raise IndexRangeError("getitem", f"index {show(i)} is out of range for axis {axis} with size {show(n)}")
    return i + n if i < 0 else i


def _normal_slice(start, stop, step, n: Dim) -> tuple[Dim, Dim, Dim]:
    step = 1 if step is None else step
    if step == 0:
        raise IndexRangeError("getitem", "a slice has step 0")
    low, high = (0, n) if step > 0 else (-1, n - 1)

    def clamp(i, default):
        if i is None:
            return default
        if i < 0:
            i = i + n
            return low if i < low else i
        return high if i > high else i

    start = clamp(start, low if step > 0 else high)
    stop = clamp(stop, high if step > 0 else low)
    size = maximum(ceildiv(stop - start, step), 0)
    if size == 0:
        return 0, 1, 0
    return start, step, size


def _is_tensor(k) -> bool:
    return isinstance(k, (_runtime.Tensor, Value))


def split_key(key) -> tuple[str, list, list]:
    """(pattern, numbers, advanced): advanced lists (position among the key's entries, index tensor); those entries stand as
    full slices in the pattern."""
    if not isinstance(key, tuple):
        key = (key,)
    pattern, numbers, advanced = [], [], []
    for k in key:
        if k is None:
            pattern.append("n")
        elif k is Ellipsis:
            if "e" in pattern:
                raise IndexRangeError("getitem", "an index has more than one ellipsis ('...')")
            pattern.append("e")
        elif isinstance(k, slice):
            bits = 0
            for bit, part in ((1, k.start), (2, k.stop), (4, k.step)):
                if part is not None:
                    bits |= bit
                    numbers.append(part if isinstance(part, int) or not hasattr(part, "__index__") else part.__index__())
            pattern.append(chr(ord("A") + bits - 1) if bits else ":")
        elif isinstance(k, int) and not isinstance(k, bool):
            pattern.append("i")
            numbers.append(k)
        elif _is_tensor(k) and k.ndim == 0 and k.dtype.is_integer and isinstance(k, _runtime.Tensor):
            pattern.append("i")
            numbers.append(int(k))
        else:
            advanced.append((len(pattern), _as_index(k)))
            pattern.append("t")
    return pattern, numbers, advanced


def _as_index(k):
    if not _is_tensor(k):
        if isinstance(k, bool) or hasattr(k, "dtype") or isinstance(k, (list, tuple)):
            import tandem as td

            k = td.asarray(k)
            if k.size == 0 and k.dtype.is_floating:
                k = k.to(dtypes.int64)
        elif hasattr(k, "__index__"):
            import tandem as td

            k = td.tensor(k.__index__())
        else:
            raise DTypeError("getitem", f"a {type(k).__name__} cannot be an index", fix="use ints, slices, None, ..., or tensors of ints or bools")
    if k.dtype.kind != "bool" and not k.dtype.is_integer:
        raise DTypeError("getitem", f"an index tensor is {k.dtype}; it must hold integers or booleans", fix="convert it: index.to(td.int64)")
    return k


def getitem(x, key):
    """x[key]: basic keys give views, index tensors and masks give copies."""
    pattern, numbers, advanced = split_key(key)
    if not advanced:
        return F.index_basic(x, "".join(pattern), tuple(numbers))
    x, tensors, axes = _advanced(x, pattern, numbers, advanced)
    return F.gather_at(x, tensors, axes)


def setitem(x, key, value):
    """x[key] = value, in place."""
    pattern, numbers, advanced = split_key(key)
    if not _is_tensor(value) and not isinstance(value, (bool, int, float)):
        import tandem as td

        value = td.asarray(value)
    if not advanced:
        target = F.index_basic(x, "".join(pattern), tuple(numbers))
        if _is_tensor(value) and value.ndim > target.ndim:  # leading axes of size 1 may go, as in NumPy
            value = _drop_leading(value, target.ndim)
        F.copy_(target, value)
        return
    target, tensors, axes = _advanced(x, pattern, numbers, advanced)
    F.scatter_at_(target, tensors, axes, value)


def _drop_leading(value, ndim: int):
    extra = value.ndim - ndim
    if all(d == 1 for d in value.shape[:extra]):
        return value.reshape(value.shape[extra:])
    return value


def _advanced(x, pattern, numbers, advanced):
    """Splits a key with index tensors: a view by its basic part, then index tensors and the axes they stand on."""
    tensors = dict(advanced)
    expanded: list[str] = []
    found: list[tuple[int, object]] = []  # (position in expanded, integer tensor)
    rest = iter(numbers)
    kept: list[int] = []
    for position, c in enumerate(pattern):
        if c == "t":
            for t in _integer_tensors(x, tensors[position], _axis_before(pattern, tensors, position, x.ndim)):
                if t is None:  # a 0-d mask: a new axis of size 0 or 1
                    expanded.append("n")
                else:
                    found.append((len(expanded), t))
                    expanded.append(":")
        elif c == "i":
            import tandem as td

            found.append((len(expanded), td.tensor(next(rest))))
            expanded.append(":")
        else:
            expanded.append(c)
            if c not in ":ne":
                for bit in (1, 2, 4):
                    if (ord(c) - ord("A") + 1) & bit:
                        kept.append(next(rest))
    given = sum(c not in "ne" for c in expanded)
    if given > x.ndim:
        raise IndexRangeError("getitem", f"{given} indices for a tensor of shape {show_shape(x.shape)}")
    view = F.index_basic(x, "".join(expanded), tuple(kept))
    axes = []
    for position, _ in found:
        axis = 0
        for c in expanded[:position]:
            axis += x.ndim - given if c == "e" else 1
        axes.append(axis)
    return view, [t for _, t in found], tuple(axes)


def _axis_before(pattern, tensors, position, ndim: int) -> int:
    """The axis of x at which the entry at `position` stands."""
    widths = [0 if c in "ne" else tensors[p].ndim if c == "t" and tensors[p].dtype.kind == "bool" else 1 for p, c in enumerate(pattern)]
    if "e" in pattern[:position]:
        return ndim - sum(widths[position:])
    return sum(widths[:position])


def _integer_tensors(x, index, axis: int) -> list:
    """A mask as the positions where it holds, one tensor per axis; an integer index as itself."""
    if index.dtype.kind != "bool":
        return [index]
    if index.ndim == 0:
        raise IndexRangeError("getitem", "a 0-d boolean cannot be an index", fix="use td.where, or mask.reshape(1) on an unsqueezed tensor")
    if axis + index.ndim > x.ndim or any(a != b for a, b in zip(index.shape, x.shape[axis : axis + index.ndim], strict=True)):
        raise ShapeError("getitem", f"a mask of shape {show_shape(index.shape)} does not match axes {axis} to {axis + index.ndim - 1} of shape {show_shape(x.shape)}")
    return list(F.nonzero(index, as_tuple=True))
