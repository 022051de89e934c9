"""What operator functions do to their arguments first: numbers to values, one dtype, one shape; axes and sizes checked."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes, promotion
from tandem.errors import AxisError, DTypeError, IntegerRangeError, ShapeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.graph.symbolic import Dim, Sym, is_general, product
from tandem.ops.define import tracing

_WIDER = (dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint64)
_NUMBER_KINDS = {bool: "bool", int: "int", float: "float", complex: "complex"}


def is_number(x) -> bool:
    return isinstance(x, (bool, int, float, complex, Sym))


def constant(value, dtype: dtypes.DType) -> Value:
    """A Python number (or size) as a 0-d value of the given dtype."""
    if isinstance(value, Sym):
        return cast(F.Size(value, dtypes.int64)(), dtype)
    if dtype.kind == "bool":
        value = bool(value)
    elif dtype.is_integer:
        value = int(value)
    elif dtype.is_floating:
        value = float(value)
    elif dtype.is_complex:
        value = complex(value)
    return F.Constant(value, dtype)()


def cast(x: Value, dtype: dtypes.DType) -> Value:
    """x of the given dtype, no longer weak: a Python number stops adapting to what it meets."""
    return x if x.dtype is dtype and not x.type.weak else F.Cast(dtype)(x)


def weak_kind(x) -> str | None:
    """Kind of a Python number, given as such or as a weak value; None for tensors."""
    if isinstance(x, Value):
        return x.dtype.kind if x.type.weak else None
    if isinstance(x, Sym):
        return "int"
    for python_type, kind in _NUMBER_KINDS.items():
        if isinstance(x, python_type):
            return kind
    raise DTypeError(None, f"{type(x).__name__} is neither a tensor nor a number")


def promoted(strong: dtypes.DType | None, single: dtypes.DType | None) -> dtypes.DType | None:
    """The type of tensors with axes and of tensors without them, together: Note [Tensors without axes] in promotion.py."""
    if strong is None or single is None or single is strong:
        return single if strong is None else strong
    return (dtypes.promote_single if follows_pytorch() else dtypes.promote)(strong, single)


def follows_pytorch() -> bool:
    """Whether the call that is being computed or traced is of a program that follows PyTorch."""
    return tracing.axes_first if tracing.axes_first is not None else promotion.axes_first()


def result_dtype(*operands) -> dtypes.DType:
    """The dtype that operands promote to; Python numbers are weak."""
    strong = single = None  # of tensors with axes, and of those without
    kinds = []
    for x in operands:
        kind = weak_kind(x)
        if kind is not None:
            kinds.append(kind)
        elif x.shape:
            strong = x.dtype if strong is None else dtypes.promote(strong, x.dtype)
        else:
            single = x.dtype if single is None else dtypes.promote(single, x.dtype)
    strong = promoted(strong, single)
    if strong is None:
        strongest = max(kinds, key=("bool", "int", "float", "complex").index)
        if strongest in ("bool", "int"):
            return dtypes.bool_ if strongest == "bool" else dtypes.int64
        return dtypes.default_float() if strongest == "float" else dtypes.default_complex()
    for kind in kinds:
        strong = dtypes.promote_weak(strong, kind)
    return strong


def as_dtype_value(x, dtype: dtypes.DType) -> Value:
    return cast(x, dtype) if isinstance(x, Value) else constant(x, dtype)


def assigned(op: str, x, dtype: dtypes.DType) -> Value:
    """x as it is written into elements of dtype: a complex number does not lose its imaginary part there."""
    if not dtype.is_complex and (weak_kind(x) == "complex" or (isinstance(x, Value) and x.dtype.is_complex)):
        raise DTypeError(op, f"a complex value cannot go into {dtype}", fix="use a complex tensor, or value.real")
    if isinstance(x, (int, float)):
        require_fit(op, "value", x, dtype)
    return as_dtype_value(x, dtype)


def require_fit(op: str, parameter: str, number, dtype: dtypes.DType):
    """A number is written into elements of dtype: where they are integers, it must be one of theirs.

    Negative integers wrap in unsigned types, as in PyTorch. Numbers of calls are looked at when arguments are bound, by this rule.
    """
    if not dtype.is_integer or not isinstance(number, (int, float)):
        return
    low, high = integer_range(dtype)
    low = -high if dtype.kind == "uint" and isinstance(number, int) else low
    if not (math.isfinite(number) and low <= int(number) <= high):
        raise does_not_fit(op, parameter, number, dtype)


def does_not_fit(op: str, parameter: str, number, dtype) -> IntegerRangeError:
    return IntegerRangeError(
        op, f"{parameter} is {number}, which does not fit {dtype}", fix=f"convert the tensor to {_room_for(number)}"
    )


def _room_for(number) -> str:
    """The types that have room for a number, in words."""
    if isinstance(number, int):
        found = next((t for t in _WIDER if integer_range(t)[0] <= number <= integer_range(t)[1]), None)
        return f"td.{found} or a float type" if found else "a float type"
    return "a float type"


def promote(*operands) -> tuple[Value, ...]:
    dtype = result_dtype(*operands)
    return tuple(as_dtype_value(x, dtype) for x in operands)


def promote_float(*operands) -> tuple[Value, ...]:
    """promote for functions of floats: integers become the default float, Python numbers at once, whatever they meet."""
    dtype = result_dtype(*operands)
    dtype = dtype if dtype.is_inexact else dtypes.default_float()
    return tuple(as_dtype_value(x, dtype) for x in operands)


def promote_to_compare(*operands) -> tuple[Value, ...]:
    """promote for comparisons, in which a Python integer counts with its own value, also where a type has no room for it."""
    dtype = result_dtype(*operands)
    if dtype.is_integer and dtype is not dtypes.uint64 and any(weak_kind(x) == "int" for x in operands):
        dtype = dtypes.int64
    return tuple(as_dtype_value(x, dtype) for x in operands)


def integer_range(dtype: dtypes.DType) -> tuple[int, int]:
    bits = 8 * dtype.itemsize
    return (0, 2**bits - 1) if dtype.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def nearest(x, dtype: dtypes.DType) -> Value:
    """as_dtype_value, but a Python integer beyond an integer dtype becomes its least or largest number instead of wrapping."""
    if not dtype.is_integer or dtype is dtypes.int64 or weak_kind(x) not in ("int", "bool"):
        return as_dtype_value(x, dtype)
    low, high = integer_range(dtype)
    if isinstance(x, int):
        return constant(min(max(x, low), high), dtype)
    wide = as_dtype_value(x, dtypes.int64)
    wide = F.Maximum()(wide, constant(low, dtypes.int64))
    return cast(wide if high >= 2**63 else F.Minimum()(wide, constant(high, dtypes.int64)), dtype)


def as_value(x) -> Value:
    """x as a value of a dtype of its own: Python numbers take their kind's default."""
    return as_dtype_value(x, result_dtype(x))


def to_float(x) -> Value:
    """x as a floating value: integers and booleans become the default float."""
    if not isinstance(x, Value):
        return constant(x, dtypes.default_complex() if isinstance(x, complex) else dtypes.default_float())
    if x.type.weak:
        return cast(x, dtypes.default_complex() if x.dtype.is_complex else dtypes.default_float())
    return x if x.dtype.is_inexact else cast(x, dtypes.default_float())


def require_float(op: str, x: Value, argument: str = "x") -> Value:
    if not x.dtype.is_inexact:
        raise DTypeError(
            op, f"{argument} is {x.dtype} and must be floating", fix=f"convert it: {argument}.to(td.float32)"
        )
    return x


def broadcast_shapes(op: str, *shapes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    ndim = max((len(s) for s in shapes), default=0)
    result: list[Dim] = [1] * ndim
    for shape in shapes:
        offset = ndim - len(shape)
        for i, d in enumerate(shape):
            current = result[offset + i]
            if d is current or (isinstance(d, int) and d == 1):
                continue
            if isinstance(current, int) and current == 1:
                result[offset + i] = d
            elif d != current:
                if d == 1:
                    continue
                if current == 1:
                    result[offset + i] = d
                    continue
                texts = " and ".join(str(show_shape(s)) for s in shapes)
                raise ShapeError(
                    op,
                    f"shapes {texts} do not broadcast: sizes {show(current)} and {show(d)} of axis {i - len(shape)} differ "
                    "and neither is 1",
                    fix="make the sizes equal, or give one of them size 1 (x.unsqueeze(axis), x.reshape(...))",
                )
    return tuple(result)


def show(d: Dim) -> int:
    return d.hint if isinstance(d, Sym) else d


def show_shape(shape) -> tuple[int, ...]:
    return tuple(show(d) for d in shape)


def expand_to(x: Value, shape: tuple[Dim, ...], op: str = "expand") -> Value:
    """x broadcast to shape. 0-d values stay as they are: elementwise operators take them so."""
    if x.ndim == 0 and shape:
        return x
    given = x.shape
    if x.ndim < len(shape):
        x = F.Reshape((1,) * (len(shape) - x.ndim) + x.shape)(x)
    if x.ndim > len(shape):
        raise _does_not_fit(op, given, shape)
    pairs = list(zip(x.shape, shape))
    if all(a is b or (isinstance(a, int) and isinstance(b, int) and a == b) for a, b in pairs):
        return x
    longer = any(isinstance(a, int) and a == 1 and is_general(b) for a, b in pairs)
    if not longer and all(a == b for a, b in pairs):
        return x
    # Expand repeats axes that are the number 1: a computed size that is 1 in this call (x[1:] of two rows) becomes it.
    written = []
    for a, b in pairs:
        if a is b or (isinstance(a, int) and a == 1) or a == b:
            written.append(a)
        elif a == 1:
            written.append(1)
        else:
            raise _does_not_fit(op, given, shape)
    if any(a is not b for a, b in zip(written, x.shape)):
        x = F.Reshape(tuple(written))(x)
    return F.Expand(shape)(x)


def _does_not_fit(op: str, given, shape) -> ShapeError:
    return ShapeError(
        op,
        f"a tensor of shape {show_shape(given)} does not broadcast to {show_shape(shape)}",
        fix="its axes, counted from the last, must have the same size or 1",
    )


def broadcast(op: str, *values: Value) -> tuple[Value, ...]:
    shape = broadcast_shapes(op, *(v.shape for v in values))
    return tuple(expand_to(v, shape) for v in values)


def full_expand(x: Value, shape: tuple[Dim, ...], op: str = "expand") -> Value:
    """Like expand_to, but a 0-d value is expanded too."""
    if x.ndim == 0 and shape:
        x = F.Reshape((1,) * len(shape))(x)
    return expand_to(x, shape, op)


def with_weights(op: str, x: Value, *weights: Value | None) -> tuple:
    """x and the weights of a layer, which must have its dtype; under td.autocast, one of those that it converts.

    A layer does not convert: float64 data would make everything after it float64, and slow, without a word.
    """
    given = [x, *(w for w in weights if w is not None)]
    if all(w.dtype is x.dtype for w in given):
        return x, *weights
    narrow = (dtypes.float32, dtypes.float16, dtypes.bfloat16)
    if tracing.autocast_dtype is None or any(w.dtype not in narrow for w in given):
        other = next(w.dtype for w in given if w.dtype is not x.dtype)
        raise DTypeError(
            op,
            f"the input is {x.dtype} and the weights are {other}; they must have the same dtype",
            fix=f"convert the input, x.to(td.{other}), or the layer, layer.to(td.{x.dtype})",
        )
    made = iter(promote(*given))
    return tuple(None if w is None else next(made) for w in (x, *weights))


def binary(op: str, primitive, x, y) -> Value:
    """The usual two-operand elementwise function: promote, broadcast, apply."""
    x, y = promote(x, y)
    return primitive(*broadcast(op, x, y))


def float_binary(op: str, primitive, x, y) -> Value:
    """binary for functions of floats: integers become the default float first."""
    return primitive(*broadcast(op, *promote_float(x, y)))


def normalize_axis(op: str, axis: int, ndim: int) -> int:
    if isinstance(axis, bool):
        raise DTypeError(op, f"axis is {axis}; it must be an integer", fix="name the argument that it is meant for")
    axis = int(axis)
    if not -ndim <= axis < ndim:
        if ndim == 0 and axis in (0, -1):
            return 0
        raise AxisError(
            op,
            f"axis {axis} is out of range for {ndim} axes",
            fix=f"use an axis from {-ndim} to {ndim - 1}" if ndim else None,
        )
    return axis % ndim


def normalize_axes(op: str, axis, ndim: int) -> tuple[int, ...]:
    """None: all axes; an int or a tuple of ints otherwise. Sorted."""
    if axis is None:
        return tuple(range(ndim))
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    normal = tuple(normalize_axis(op, a, ndim) for a in axes)
    if len(set(normal)) != len(normal):
        raise ValueRangeError(op, f"axis {axes} names an axis twice")
    return tuple(sorted(a for a in normal if ndim))


def numel(x: Value) -> Dim:
    return product(x.shape)
