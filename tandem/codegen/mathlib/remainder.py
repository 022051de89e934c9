"""Remainders of floats, exact for any two numbers.

|x| = M 2^d in units of the last bit of |y| = m, both integral. Subtracting multiples of m would take one step for every few
binary digits of the quotient, of which there may be two thousand. Instead 2^d mod m is found by repeated squaring, all in
floats: a product and its rounding error are exact, and so is what remains after taking off the nearest multiple of m.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.mathlib.numbers import (
    F32,
    F64,
    INF,
    NAN,
    at_least,
    decompose,
    format_of,
    is_negative,
    power_of_two,
    scale,
    two_product,
)


def fmod(b, x, y):
    """What remains of x after taking off y as often as it fits; has the sign of x, as in C.

    Nearly always the quotient is small enough for its whole part q to be found by division, and x - q y has no rounding.
    """
    wide = dtypes.float64
    xw, yw = b.cast(x, wide), b.cast(y, wide)
    quotient = xw / yw
    r = b.fma(-b.trunc(quotient), yw, xw)
    if format_of(x) is F64:  # the quotient may have been rounded up to the next whole number
        r = b.where((r != 0.0) & (is_negative(b, r) != is_negative(b, xw)), r + b.copysign(yw, xw), r)
    r = b.copysign(b.cast(r, x.dtype), x)
    small = (b.abs(quotient) < (2.0**28 if format_of(x) is F32 else 2.0**52)) & (b.abs(y) < INF)
    return b.rarely(~small, _any_fmod(b, x, y), r)


def _any_fmod(b, x, y):
    """fmod whatever the quotient."""
    f = format_of(x)
    a, n = b.abs(x), b.abs(y)
    ea, ma = decompose(b, a, 1.0)
    en, mn = decompose(b, n, 1.0)
    distance = at_least(b, ea - en, 0.0)
    unit = 2.0**f.fraction
    if f is F32:  # float64 holds the products
        wide = dtypes.float64
        r = _modulo(b, b.cast(ma, wide) * unit, b.cast(mn, wide) * unit, b.cast(distance, wide), 5, exact_products=True)
        r = b.cast(r, f.dtype)
    else:
        r = _modulo(b, ma * unit, mn * unit, distance, 6, exact_products=False)
    r = scale(b, r, en - f.fraction)
    r = b.where(a < n, a, r)
    defined = (a < INF) & (n > 0.0) & ~b.isnan(y)
    return b.where(defined, b.copysign(r, x), NAN)


def _modulo(b, a, m, d, bits, exact_products):
    """a 2^d mod m for integral a < 2m, d >= 0. Powers of two up to 2^(d >> bits) need no reduction."""
    inverse = 1.0 / m

    def nearest(r):  # the remainder of least size
        return b.fma(b.round(r * inverse), -m, r)

    def product(u, v):
        if exact_products:
            return nearest(u * v)
        high, low = two_product(b, u, v)
        return nearest(nearest(high) + low)

    power = b.floor(d * 0.5**bits)
    result = nearest(power_of_two(b, power))
    for bit in reversed(range(bits)):
        lower = b.floor(d * 0.5**bit)
        odd = lower - (power + power)  # 0 or 1
        power = lower
        result = product(result, result)
        result = nearest(result + result * odd)
    result = product(result, nearest(a))
    return b.where(result < 0.0, result + m, result)


def mod_float(b, x, y):
    """The remainder with the sign of y, as Python's %."""
    r = b.fmod(x, y)
    r = b.where((r != 0.0) & (is_negative(b, r) != is_negative(b, y)), r + y, r)
    return b.where(r == 0.0, b.copysign(r, y), r)


def floordiv_float(b, x, y):
    """floor(x / y), from the exact remainder, as Python's //; x / y where y is zero or one of them is infinite, as the Array API
    standard has it."""
    r = b.fmod(x, y)
    quotient = (x - r) / y
    quotient = b.where((r != 0.0) & (is_negative(b, r) != is_negative(b, y)), quotient - 1.0, quotient)
    whole = b.floor(quotient)
    whole = b.where(quotient - whole > 0.5, whole + 1.0, whole)  # it is integral but for its rounding
    whole = b.where(whole == 0.0, b.copysign(whole, x / y), whole)
    unbounded = (y == 0.0) | (b.abs(x) == INF) | (b.abs(y) == INF)
    return b.where(unbounded, x / y, whole)
