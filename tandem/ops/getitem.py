"""x[key] and x[key] = value, by PyTorch's rules, which are NumPy's but for integers beside index tensors."""

from __future__ import annotations

import warnings

import tandem.ops as F
from tandem import _runtime, dtypes, promotion
from tandem.errors import DTypeError, IndexRangeError, IndexTypeError
from tandem.graph.ir import Value
from tandem.graph.symbolic import Dim, Sym, ceildiv, clamped, from_start, is_general, maximum
from tandem.ops.define import op
from tandem.ops.movement import take_slice
from tandem.ops.prepare import broadcast_shapes, show, show_shape

# Note [Index patterns]
# A basic key (ints, slices, None, ...) is split into a pattern, which the plan is made for, and its numbers, which are inputs:
# x[2:5] and x[3:9] share one plan. Letters: i an int, : a full slice, n None, e an ellipsis, and for other slices one of
# A..G whose bits say which of start, stop, step are given.


@op(internal=True)
def index_basic(x: Tensor, pattern, numbers: Ints):
    """x[...] with ints, slices, None and an ellipsis, as a pattern and its numbers; see Note [Index patterns]. A view."""
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
    return from_start(i, n) if is_general(i, n) else i + n if i < 0 else i


def _normal_slice(start, stop, step, n: Dim) -> tuple[Dim, Dim, Dim]:
    step = 1 if step is None else step
    if step == 0:
        raise IndexRangeError("getitem", "a slice has step 0")
    low, high = (0, n) if step > 0 else (-1, n - 1)

    def clamp(i, default):
        if i is None:
            return default
        if is_general(i, n):
            return clamped(from_start(i, n), low, high)
        if i < 0:
            i = i + n
            return low if i < low else i
        return high if i > high else i

    start = clamp(start, low if step > 0 else high)
    stop = clamp(stop, high if step > 0 else low)
    size = maximum(ceildiv(stop - start, step), 0)
    if is_general(start, stop, n):
        return start, step, size
    if size == 0:
        return 0, 1, 0
    if not -n < step < n:  # one element at most: where the next would be does not matter, and might not fit 64 bits
        return start, 1, size
    return start, step, size


def _is_tensor(k) -> bool:
    return isinstance(k, (_runtime.Tensor, Value))


_FAR = 2**62  # beyond every size: what slices are clamped to, as Python's are


def _slice_number(part) -> int:
    if not hasattr(part, "__index__") and not isinstance(part, Sym):
        raise DTypeError("getitem", f"a slice has a {type(part).__name__}; it must have integers or None")
    if isinstance(part, Sym):
        return part
    return max(-_FAR, min(_FAR, part.__index__()))


def _plain_int(k):
    """An entry that counts as one integer: an int, a NumPy integer, an integer tensor or array of no axes.
    None otherwise."""
    if isinstance(k, bool):
        return None
    if isinstance(k, (int, Sym)):
        return k
    if isinstance(k, _runtime.Tensor):
        # A number where its value is there; what a program still has to compute is looked up by it.
        known = not _runtime.capturing() or not (_runtime.in_body() or _runtime.unsettled(k))
        return int(k) if k.ndim == 0 and k.dtype.is_integer and known else None
    if isinstance(k, (Value, list, tuple)):
        return None
    if hasattr(k, "dtype"):
        return k.__index__() if getattr(k, "ndim", 0) == 0 and k.dtype.kind in "iu" else None
    return k.__index__() if hasattr(k, "__index__") else None


def _is_tuple_there(key: list) -> bool:
    """Whether PyTorch takes a list for a tuple, one index an axis, and the caller follows PyTorch. NumPy makes it one array."""
    several = len(key) < 32 and any(
        k is None
        or k is Ellipsis
        or isinstance(k, (list, tuple, slice, range, _runtime.Tensor))
        or getattr(k, "ndim", 0)
        for k in key
    )
    if not several or not promotion.axes_first():
        return False
    warnings.warn(
        "a list of indices is taken for a tuple of them, one for each axis, as PyTorch does: write x[tuple(indices)], or "
        "x[torch.tensor(indices)] for one index tensor",
        stacklevel=4,
    )
    return True


def split_key(key) -> tuple[list, list, dict]:
    """(pattern, numbers, tensors): tensors has the index tensors and masks by position in the pattern, where
    they stand as "t"."""
    pattern, numbers, tensors = [], [], {}
    if isinstance(key, list) and _is_tuple_there(key):
        key = tuple(key)
    for k in key if isinstance(key, tuple) else (key,):
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
                    numbers.append(_slice_number(part))
            pattern.append(chr(ord("A") + bits - 1) if bits else ":")
        elif (number := _plain_int(k)) is not None:
            if not isinstance(number, Sym) and not -_FAR <= number <= _FAR:
                raise IndexRangeError("getitem", f"index {number} is out of range for every axis")
            pattern.append("i")
            numbers.append(number)
        else:
            tensors[len(pattern)] = _as_index(k)
            pattern.append("t")
    return pattern, numbers, tensors


def _as_index(k):
    if not _is_tensor(k):
        if isinstance(k, range):
            k = list(k)
        if not (isinstance(k, (bool, list, tuple)) or hasattr(k, "dtype")):
            raise IndexTypeError(
                "getitem",
                f"a {type(k).__name__} cannot be an index",
                fix="use ints, slices, None, ..., or tensors of ints or bools",
            )
        k = F.from_data.asarray(k)
        if k.size == 0 and k.dtype.is_floating:
            k = k.to(dtypes.int64)
    if k.dtype is dtypes.uint8 and promotion.axes_first():
        warnings.warn(
            "an index of uint8 is taken for a mask, as PyTorch does: convert it to bool, or to int64 if it holds positions",
            stacklevel=5,
        )
        return k != 0
    if k.dtype.kind != "bool" and not k.dtype.is_integer:
        raise IndexTypeError(
            "getitem",
            f"an index tensor is {k.dtype}; it must hold integers or booleans",
            fix="convert it: index.to(td.int64)",
        )
    return k


def _is_integer_index(key) -> bool:
    return isinstance(key, _runtime.Tensor) and key.ndim > 0 and key.dtype.is_integer and key.dtype is not dtypes.uint8


def _plain_indices(x, key) -> tuple[list, tuple] | None:
    """(index tensors, axes) of a key of index tensors and full slices: the usual case, which needs no taking apart."""
    if not isinstance(key, tuple):
        return ([key], (0,)) if _is_integer_index(key) and x.ndim else None
    indices, axes = [], []
    for axis, k in enumerate(key):
        if isinstance(k, slice):
            if k.start is not None or k.stop is not None or k.step is not None:
                return None
        elif _is_integer_index(k):
            indices.append(k)
            axes.append(axis)
        else:
            return None
    return (indices, tuple(axes)) if indices and len(key) <= x.ndim else None


def getitem(x, key):
    """x[key]: basic keys give views, index tensors and masks give copies."""
    plain = _plain_indices(x, key)
    if plain is not None:
        return F.gather_at(x, *plain)
    if isinstance(key, _runtime.Tensor) and isinstance(x, _runtime.Tensor):
        made = _runtime.masked_select(x, key)  # of a mask, in one call
        if made is not None:
            return made
    pattern, numbers, tensors = split_key(key)
    if not tensors:
        return F.index_basic(x, "".join(pattern), tuple(numbers))
    return F.gather_at(*_advanced(x, pattern, numbers, tensors))


def setitem(x, key, value):
    """x[key] = value, in place."""
    put(x, key, value, "set")


def put(x, key, value, mode: str):
    """x[key] = value, or with mode "add" what it would be if repeated positions each counted."""
    if not _is_tensor(value) and not isinstance(value, (bool, int, float)):
        if isinstance(value, complex) and not x.dtype.is_complex:
            raise DTypeError(
                "setitem", f"a complex value cannot go into {x.dtype}", fix="use a complex tensor, or value.real"
            )
        value = F.from_data.asarray(value, dtype=x.dtype if isinstance(value, complex) and x.dtype.is_complex else None)
    plain = _plain_indices(x, key)
    if plain is not None and (
        not _is_tensor(value) or value.ndim <= x.ndim - len(plain[1]) + max(i.ndim for i in plain[0])
    ):
        F.scatter_at_(x, *plain, value, mode)
        return
    target = _runtime.basic_view(x, key) if isinstance(x, _runtime.Tensor) else None
    if target is None:
        pattern, numbers, tensors = split_key(key)
    if target is not None or not tensors:
        if target is None:
            target = F.index_basic(x, "".join(pattern), tuple(numbers))
        if _is_tensor(value) and value.ndim > target.ndim:  # leading axes of size 1 may go, as in NumPy
            value = _drop_leading(value, target.ndim)
        F.copy_(target, value if mode == "set" else F.add(target, value))
        return
    if (
        mode == "set"
        and pattern == ["t"]
        and tensors[0].dtype.kind == "bool"
        and (not _is_tensor(value) or value.ndim == 0)
    ):
        _check_mask(x, tensors[0], 0)
        if 0 in tensors[0].shape:
            return
        mask = F.reshape(tensors[0], tensors[0].shape + (1,) * (x.ndim - tensors[0].ndim))
        F.masked_fill_(x, mask, value)  # one pass, and no need to count
        return
    target, indices, axes = _advanced(x, pattern, numbers, tensors)
    if _is_tensor(value):
        shape = broadcast_shapes("index_put", *(i.shape for i in indices))
        value = _drop_leading(value, len(shape) + target.ndim - len(axes))
    F.scatter_at_(target, indices, axes, value, mode)


def _drop_leading(value, ndim: int):
    extra = value.ndim - ndim
    if extra > 0 and all(d == 1 for d in value.shape[:extra]):
        return value.reshape(value.shape[extra:])
    return value


# Note [Index tensors]
# A key with index tensors is a view by its basic part, then a gather at the index tensors on some axes of that view. Integers
# are of the basic part, as in PyTorch: their axes are gone before it is asked whether index tensors are neighbours, so that
# x[0, :, index] is x[0][:, index]. (To NumPy they are index tensors, and the result of that has its axes the other way round.)
# A 0-d mask stands on a new axis of size 1, of which it takes the one element or none.


def _advanced(x, pattern, numbers, tensors):
    expanded: list[str] = []
    found: list[tuple[int, object]] = []  # (position in expanded, integer tensor)
    rest = iter(numbers)
    kept: list[int] = []
    widths = [
        0 if c in "ne" else tensors[p].ndim if c == "t" and tensors[p].dtype.kind == "bool" else 1
        for p, c in enumerate(pattern)
    ]
    if sum(widths) > x.ndim:
        raise IndexRangeError("getitem", f"{sum(widths)} indices for a tensor of shape {show_shape(x.shape)}")
    for position, c in enumerate(pattern):
        axis = x.ndim - sum(widths[position:]) if "e" in pattern[:position] else sum(widths[:position])
        if c == "t":
            index = tensors[position]
            if index.dtype.kind != "bool":
                found.append((len(expanded), index))
                expanded.append(":")
                continue
            _check_mask(x, index, axis)
            letter = ":" if index.ndim else "n"
            for positions in F.nonzero(index if index.ndim else F.reshape(index, (1,)), as_tuple=True):
                found.append((len(expanded), positions))
                expanded.append(letter)
        elif c == "i":
            expanded.append(c)
            kept.append(_normal_int(next(rest), x.shape[axis], axis))
        else:
            expanded.append(c)
            if c not in ":ne":
                bits = ord(c) - ord("A") + 1
                kept += [next(rest) for bit in (1, 2, 4) if bits & bit]
    view = F.index_basic(x, "".join(expanded), tuple(kept))
    ellipsis = x.ndim - sum(widths)
    wide = {"e": ellipsis, "i": 0}
    axes = tuple(sum(wide.get(c, 1) for c in expanded[:position]) for position, _ in found)
    return view, [t for _, t in found], axes


def _check_mask(x, mask, axis: int):
    # An empty mask picks nothing from an axis of any size, as in NumPy and the Array API.
    if axis + mask.ndim > x.ndim or any(
        a != b and a != 0 for a, b in zip(mask.shape, x.shape[axis : axis + mask.ndim], strict=True)
    ):
        raise IndexRangeError(
            "getitem",
            f"a mask of shape {show_shape(mask.shape)} does not match shape {show_shape(x.shape)} from axis {axis} on",
        )
