"""Complex scalars: everything that is computed with them, as expressions of their real and imaginary parts.

A complex Expr is a `load` of complex memory or `complex(re, im)`; parts are taken with `real` and `imag`. All arithmetic is
between parts, so a renderer knows complex numbers only as pairs that it loads, stores, takes apart and puts together.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.dtypes import DType


def cast(b, x, dtype: DType):
    """Between complex types, or from and to real ones. To a real type the imaginary part is dropped; to bool it counts."""
    if dtype.kind == "bool":
        return binary(b, "ne", x, b.const(0, x.dtype))
    if not dtype.is_complex:
        return b.cast(b.real(x), dtype)
    part = dtypes.REAL_PART[dtype]
    if not x.dtype.is_complex:
        return b.complex(b.cast(x, part), b.const(0, part))
    return b.complex(b.cast(b.real(x), part), b.cast(b.imag(x), part))


def where(b, condition, x, y):
    return b.complex(b.where(condition, b.real(x), b.real(y)), b.where(condition, b.imag(x), b.imag(y)))


def binary(b, op: str, x, y):
    re, im, other_re, other_im = b.real(x), b.imag(x), b.real(y), b.imag(y)
    if op in ("add", "sub"):
        return b.complex(b.binary(op, re, other_re), b.binary(op, im, other_im))
    if op == "mul":
        return b.complex(re * other_re - im * other_im, re * other_im + im * other_re)
    if op == "div":
        return divide(b, re, im, other_re, other_im)
    if op == "eq":
        return (re == other_re) & (im == other_im)
    if op == "ne":
        return (re != other_re) | (im != other_im)
    raise TypeError(f"{op} of complex numbers, which have no order")


def divide(b, a, c, x, y):
    """(a + ci) / (x + yi) by Smith's method: the quotient of the divisor's parts keeps squares from overflowing."""
    high = 2.0**125 if x.dtype is dtypes.float32 else 2.0**1021
    far = (
        (b.abs(a) > high) | (b.abs(c) > high) | (b.abs(x) > high) | (b.abs(y) > high)
    )  # sums of two parts could overflow
    scale = b.where(far, 0.25, b.const(1.0, x.dtype))
    a, c, x, y = (v * scale for v in (a, c, x, y))
    flat = b.abs(x) >= b.abs(y)
    large, small = b.where(flat, x, y), b.where(flat, y, x)
    zero = large == 0.0  # the quotient 0/0 would hide that the result is infinite
    ratio = b.where(zero, 0.0, small / large)
    divisor = b.where(zero, 0.0, large + small * ratio)
    first, second = b.where(flat, a, c), b.where(flat, c, a)
    re = (first + second * ratio) / divisor
    im = (second - first * ratio) / divisor
    return b.complex(re, b.where(flat, im, -im))


def unary(b, op: str, x):
    if op == "neg":
        return b.complex(-b.real(x), -b.imag(x))
    if op == "abs":
        return b.hypot(b.real(x), b.imag(x))
    if op == "round":
        return b.complex(b.round(b.real(x)), b.round(b.imag(x)))
    if op == "sqrt":
        return function("sqrt")(b, x)
    raise TypeError(f"{op} of a complex number")


def function(name: str):
    """The complex form of a function of mathlib."""
    from tandem.codegen.mathlib import complex as complex_functions

    found = getattr(complex_functions, name, None)
    if found is None:
        raise TypeError(f"{name} of complex numbers is not there")
    return found
