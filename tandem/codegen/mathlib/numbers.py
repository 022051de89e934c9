"""Floating-point numbers as bits, and exact sums and products: what the other files are built from."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import NamedTuple

from tandem import dtypes
from tandem.dtypes import DType

INF, NAN = math.inf, math.nan


class Format(NamedTuple):
    """One floating-point type: how its bits are laid out."""

    dtype: DType
    int: DType
    uint: DType
    fraction: int  # bits after the leading one
    bias: int
    tiny: float  # smallest normal number
    largest: float

    @property
    def magic(self) -> float:
        """Added to a number below 2^(fraction - 2) in size, it rounds it to an integer and leaves that in the low bits."""
        return 1.5 * 2.0**self.fraction

    @property
    def bits(self) -> int:
        return self.dtype.itemsize * 8


F32 = Format(dtypes.float32, dtypes.int32, dtypes.uint32, 23, 127, 2.0**-126, 2.0**128 - 2.0**104)
F64 = Format(dtypes.float64, dtypes.int64, dtypes.uint64, 52, 1023, 2.0**-1022, 1.7976931348623157e308)


def format_of(x) -> Format:
    if x.dtype is dtypes.float32:
        return F32
    if x.dtype is dtypes.float64:
        return F64
    raise TypeError(f"math functions are for float32 and float64, not {x.dtype}")


def split(value: Fraction, f: Format, parts: int = 2) -> tuple[float, ...]:
    """A constant as a sum of floats of type f, largest first, so that constants are not a source of error."""
    result = []
    for _ in range(parts):
        part = round_to(float(value), f)
        result.append(part)
        value -= Fraction(part)
    return tuple(result)


def round_to(value: float, f: Format) -> float:
    if f is F64 or value == 0:
        return value
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * 2**24), exponent - 24)


# To 70 digits
LN2 = Fraction("0.6931471805599453094172321214581765680755001343602552541206800094933936")
PI = Fraction("3.1415926535897932384626433832795028841971693993751058209749445923078164")
LOG2_E = Fraction("1.4426950408889634073599246810018921374266459541529859341354494069311092")
LOG10_E = Fraction("0.4342944819032518276511289189166050822943970058036665661144537831658646")
LOG10_2 = Fraction("0.3010299956639811952137388947244930267681898814621085413104274611271082")


# -- bits


def polynomial(b, x, coefficients):
    """Horner's rule; coefficients lowest power first."""
    result = b.const(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        result = b.fma(result, x, b.const(c, x.dtype))
    return result


def sign_bit(b, x):
    """Only the sign bit of x, as an unsigned integer."""
    f = format_of(x)
    return b.bitcast(x, f.uint) & (1 << (f.bits - 1))


def flip_sign(b, x, bit):
    """x with its sign changed where `bit`, an unsigned integer, has the highest bit."""
    f = format_of(x)
    return b.bitcast(b.bitcast(x, f.uint) ^ bit, f.dtype)


def is_negative(b, x):
    """Whether the sign bit is set; true for -0.0."""
    if not b.as_written:
        return b.copysign(b.const(1.0, x.dtype), x) < 0.0
    return b.bitcast(x, format_of(x).int) < 0


def at_most(b, x, bound: float):
    """The smaller; NaN stays. One instruction, where b.min takes several on CPUs to treat both operands alike."""
    return b.min(x, bound) if b.approximates else b.where(x > bound, bound, x)


def at_least(b, x, bound: float):
    return b.max(x, bound) if b.approximates else b.where(x < bound, bound, x)


def power_of_two(b, n):
    """2^n, where n is integral and 2^n a normal number."""
    f = format_of(n)
    shifted = b.bitcast(n + (f.magic + f.bias), f.uint)
    return b.bitcast(shifted << f.fraction, f.dtype)


def scale(b, x, n):
    """x * 2^n, rounded once, where n is integral and |n| at most about 2^(exponent bits)."""
    half = b.round(n * 0.5)
    return x * power_of_two(b, half) * power_of_two(b, n - half)


_SQRT_HALF = math.sqrt(0.5)


def decompose(b, x, low=_SQRT_HALF):
    """(e, m) with x = m * 2^e and m in [low, 2 low), for finite x > 0; nonsense, quietly, otherwise."""
    f = format_of(x)
    a = x
    small = a < f.tiny
    lift = f.fraction + 1
    a = b.where(small, a * 2.0**lift, a)
    low_bits = float_bits(low, f)
    one_bits = float_bits(1.0, f)
    shifted = b.bitcast(a, f.uint) + (one_bits - low_bits)
    m = b.bitcast((shifted & ((1 << f.fraction) - 1)) + low_bits, f.dtype)
    # The exponent becomes a float by way of the bits of 2^fraction + exponent.
    e = b.bitcast((shifted >> f.fraction) | float_bits(2.0**f.fraction, f), f.dtype)
    bias = 2.0**f.fraction + f.bias
    return e - b.where(small, b.const(bias + lift, f.dtype), b.const(bias, f.dtype)), m


def float_bits(value: float, f: Format) -> int:
    return (
        struct.unpack("<I", struct.pack("<f", value))[0]
        if f is F32
        else struct.unpack("<Q", struct.pack("<d", value))[0]
    )


# -- exact arithmetic: pairs (high, low) stand for high + low


def two_sum(b, x, y):
    total = x + y
    rest = total - x
    return total, (x - (total - rest)) + (y - rest)


def fast_two_sum(b, x, y):
    """For |x| >= |y| or x = 0."""
    total = x + y
    return total, y - (total - x)


def two_product(b, x, y):
    product = x * y
    return product, b.fma(x, y, -product)


# -- public


def frexp(b, x):
    """(m, e) with x = m * 2^e and 0.5 <= |m| < 1; e is a float. Zeros, infinities and NaN give themselves and 0."""
    e, m = decompose(b, b.abs(x), 0.5)
    special = (x == 0.0) | ~(b.abs(x) < INF)
    return b.where(special, x, b.copysign(m, x)), b.where(special, 0.0, e)


def ldexp(b, x, n):
    """x * 2^n, rounded once; n is an integral float."""
    f = format_of(x)
    m, e = frexp(b, x)
    e = at_most(b, at_least(b, e + n, -f.bias - f.fraction - 4.0), f.bias + 3.0)
    return b.where(b.isnan(n), n, scale(b, m, e))


def nextafter(b, x, y):
    """The next number after x in the direction of y."""
    f = format_of(x)
    bits = b.bitcast(x, f.int)
    away = (x < y) == (x > 0.0)  # away from zero: the bits count up
    step = b.where(away, b.const(1, f.int), b.const(-1, f.int))
    moved = b.bitcast(bits + step, f.dtype)
    smallest = b.bitcast(b.const(1, f.int), f.dtype)
    moved = b.where(x == 0.0, b.copysign(smallest, y), moved)
    moved = b.where(x == y, y, moved)
    return b.where(b.isnan(x) | b.isnan(y), NAN, moved)


def sign(b, x):
    """-1, 0 or 1; NaN for NaN."""
    one = b.const(1.0, x.dtype)
    return b.where((x == 0.0) | b.isnan(x), x, b.copysign(one, x))
