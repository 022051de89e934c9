"""asin, acos, atan and atan2, by identities that bring the argument near zero."""

from __future__ import annotations

import math

from tandem.codegen.mathlib import coefficients as c
from tandem.codegen.mathlib.numbers import F32, INF, NAN, PI, format_of, is_negative, polynomial, split


def asin(b, x):
    """Above 1/2: pi/2 - 2 asin(sqrt((1 - x) / 2))."""
    high, low = split(PI / 2, format_of(x))
    inner, s, s_tail = _asin_parts(b, x)
    large = high - (((s_tail + s_tail) - low) + (s + s))
    return b.copysign(b.where(inner, s + s_tail, large), x)


def acos(b, x):
    high, low = split(PI / 2, format_of(x))
    inner, s, s_tail = _asin_parts(b, x)
    signed = b.copysign(s, x), b.copysign(s_tail, x)
    middle = high - (signed[0] - (low - signed[1]))
    twice = (s + s) + (s_tail + s_tail)
    outer = b.where(x < 0.0, (high - ((s_tail + s_tail) - (low + low) + (s + s))) + high, twice)
    return b.where(inner, middle, outer)


def _asin_parts(b, x):
    """(|x| < 1/2, s, t) where asin(s) = s + t for s = |x| or s = sqrt((1 - |x|) / 2)."""
    f = format_of(x)
    a = b.abs(x)
    inner = a < 0.5
    z = b.where(inner, a * a, b.fma(a, -0.5, 0.5))
    s = b.where(inner, a, b.sqrt(z))
    return inner, s, s * z * polynomial(b, z, c.ASIN_F32 if f is F32 else c.ASIN_F64)


_STEP = math.tan(math.pi / 8)


def atan(b, x):
    """Above tan(pi/8): pi/4 + atan((x - 1) / (x + 1)); above its inverse: pi/2 + atan(-1 / x)."""
    a = b.abs(x)
    one = b.const(1.0, x.dtype)
    return b.copysign(_atan_ratio(b, a, one, a), x)


def atan2(b, y, x):
    """The angle of the point (x, y)."""
    f = format_of(x)
    ay, ax = b.abs(y), b.abs(x)
    both_infinite = (ay == INF) & (ax == INF)
    both_zero = (ay == 0.0) & (ax == 0.0)
    # Points near the largest and smallest numbers are scaled, so that sums do not overflow and quotients are exact enough.
    huge = (ay > f.largest / 4) | (ax > f.largest / 4)
    factor = b.where(huge, b.const(0.25, f.dtype), b.const(2.0 ** (f.fraction + 1), f.dtype))
    rescale = huge | ((ay < 1.0) & (ax < 1.0))
    factor = b.where(rescale, factor, 1.0)
    ay = b.where(
        both_infinite | both_zero, b.where(both_zero, b.const(0.0, f.dtype), b.const(1.0, f.dtype)), ay * factor
    )
    ax = b.where(both_infinite | both_zero, 1.0, ax * factor)
    angle = _atan_ratio(b, ay, ax, ay / ax)
    high, low = split(PI, f)
    angle = b.where(is_negative(b, x), high - (angle - low), angle)
    angle = b.where(b.isnan(x) | b.isnan(y), NAN, angle)
    return b.copysign(angle, y)


def _atan_ratio(b, numerator, denominator, ratio):
    """atan(numerator / denominator), both at least zero; ratio is their quotient, only compared."""
    f = format_of(numerator)
    low, high = ratio < _STEP, ratio > 1 / _STEP
    top = b.where(low, numerator, b.where(high, -denominator, numerator - denominator))
    bottom = b.where(low, denominator, b.where(high, numerator, numerator + denominator))
    t = top / bottom
    z = t * t
    tail = t * z * polynomial(b, z, c.ATAN_F32 if f is F32 else c.ATAN_F64)
    base, base_low = split(PI / 2, f)
    zero = b.const(0.0, f.dtype)
    base, base_low = (b.where(low, zero, b.where(high, v, b.const(v / 2, f.dtype))) for v in (base, base_low))
    return base + (t + (tail + base_low))
