"""Questions about element types: limits, kinds, and what promotes or casts to what. As the Array API standard has them."""

from __future__ import annotations

import math

from tandem import _runtime, dtypes
from tandem.dtypes import DType
from tandem.errors import DTypeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.ops.prepare import promoted, weak_kind

__all__ = ["can_cast", "finfo", "iinfo", "isdtype", "result_type"]

_MANTISSA_AND_EXPONENT_BITS = {"float16": (10, 5), "bfloat16": (7, 8), "float32": (23, 8), "float64": (52, 11)}
_REAL = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}
_KINDS = {
    "bool": ("bool",),
    "signed integer": ("int",),
    "unsigned integer": ("uint",),
    "integral": ("int", "uint"),
    "real floating": ("float",),
    "complex floating": ("complex",),
    "numeric": ("int", "uint", "float", "complex"),
}


def _dtype_of(op: str, thing) -> DType:
    return thing.dtype if isinstance(thing, (_runtime.Tensor, Value)) else _as_dtype(op, thing)


def _as_dtype(op: str, thing) -> DType:
    try:
        return dtypes.as_dtype(thing)
    except TypeError as error:
        raise DTypeError(op, str(error)) from None


class _Limits:
    """Numbers that describe a type, as attributes; they print like PyTorch's."""

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in vars(self).items())})"

    def __eq__(self, other):
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self):
        return hash(tuple(vars(self).values()))


class finfo(_Limits):
    """Limits of a floating type, or of the parts of a complex one: bits, eps, max, min, smallest_normal, tiny, resolution, dtype.

    >>> td.finfo(td.float32).eps
    1.1920928955078125e-07
    """

    def __init__(self, type=dtypes.float32, /):
        dtype = _dtype_of("finfo", type)
        if not dtype.is_inexact:
            raise DTypeError("finfo", f"{dtype} is not a floating type", fix="use td.iinfo for integers")
        dtype = _REAL.get(dtype, dtype)
        mantissa, exponent = _MANTISSA_AND_EXPONENT_BITS[dtype.name]
        bias = 2 ** (exponent - 1) - 1
        self.bits = 8 * dtype.itemsize
        self.resolution = float(f"1e-{int(mantissa * math.log10(2))}")
        self.max = math.ldexp(2.0 - 2.0**-mantissa, bias)
        self.min = -self.max
        self.eps = 2.0**-mantissa
        self.smallest_normal = self.tiny = 2.0 ** (1 - bias)
        self.smallest_subnormal = 2.0 ** (1 - bias - mantissa)
        self.dtype = dtype


class iinfo(_Limits):
    """Limits of an integer type: bits, max, min, dtype.

    >>> td.iinfo(td.int8).max
    127
    """

    def __init__(self, type, /):
        dtype = _dtype_of("iinfo", type)
        if not dtype.is_integer:
            raise DTypeError("iinfo", f"{dtype} is not an integer type", fix="use td.finfo for floating types")
        self.bits = 8 * dtype.itemsize
        self.min, self.max = dtype.range
        self.dtype = dtype


def isdtype(dtype, kind) -> bool:
    """Whether a dtype is of a kind: another dtype, one of "bool", "signed integer", "unsigned integer", "integral",
    "real floating", "complex floating", "numeric", or any of a tuple of these.

    >>> td.isdtype(td.uint8, "integral")
    True
    """
    dtype = _as_dtype("isdtype", dtype)
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueRangeError("isdtype", f"{kind!r} is not a kind of dtype; kinds are {', '.join(_KINDS)}")
        return dtype.kind in _KINDS[kind]
    return dtype is _as_dtype("isdtype", kind)


def result_type(*arrays_and_dtypes) -> DType:
    """The type that tensors, dtypes and Python numbers promote to. Numbers do not widen tensors of their own kind.

    >>> td.result_type(td.int8, td.uint8)
    tandem.int16
    >>> td.result_type(td.ones(2, dtype=td.float64), 1)
    tandem.float64
    """
    strong = single = None  # of tensors with axes and dtypes, and of tensors without axes
    numbers = []
    for thing in arrays_and_dtypes:
        if isinstance(thing, (bool, int, float, complex)) and not hasattr(thing, "dtype"):
            numbers.append(weak_kind(thing))
            continue
        dtype = _dtype_of("result_type", thing)
        if getattr(thing, "shape", None) == ():
            single = dtype if single is None else dtypes.promote(single, dtype)
        else:
            strong = dtype if strong is None else dtypes.promote(strong, dtype)
    strong = promoted(strong, single)
    if strong is None:
        raise ValueRangeError("result_type", "there is no tensor and no dtype among the arguments")
    for kind in numbers:
        strong = dtypes.promote_weak(strong, kind)
    return strong


def can_cast(from_, to, /) -> bool:
    """Whether values of one type (or of a tensor's type) go to another type by promotion.

    >>> td.can_cast(td.int8, td.int16), td.can_cast(td.float32, td.int64)
    (True, False)
    """
    to = _as_dtype("can_cast", to)
    return dtypes.promote(_dtype_of("can_cast", from_), to) is to
