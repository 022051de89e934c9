"""pow, roots and hypot."""

from __future__ import annotations

from fractions import Fraction

from tandem import dtypes
from tandem.codegen.mathlib import coefficients as c
from tandem.codegen.mathlib.logarithm import log_pair
from tandem.codegen.mathlib.numbers import (
    F32,
    INF,
    LN2,
    LOG2_E,
    NAN,
    at_least,
    at_most,
    decompose,
    format_of,
    is_negative,
    polynomial,
    power_of_two,
    scale,
    two_product,
)


def pow(b, x, y):
    """x^y, with the special cases of C99: 1 for y = 0 and for x = 1, whatever the other is."""
    a = b.abs(x)
    power = _positive_power_single(b, a, y) if format_of(x) is F32 else _positive_power_double(b, a, y)
    grows = y > 0.0
    at_zero = b.where(grows, b.const(0.0, x.dtype), b.const(INF, x.dtype))
    at_infinity = b.where(grows, b.const(INF, x.dtype), b.const(0.0, x.dtype))
    power = b.where(a == 0.0, at_zero, b.where(a == INF, at_infinity, power))
    power = b.where(a == 1.0, 1.0, power)
    integral = b.trunc(y) == y
    half = y * 0.5
    odd = integral & (b.trunc(half) != half)
    power = b.where(is_negative(b, x) & odd, -power, power)
    undefined = b.isnan(x) | b.isnan(y) | ((x < 0.0) & (x > -INF) & ~integral)
    power = b.where(undefined, NAN, power)
    return b.where((y == 0.0) | (x == 1.0), 1.0, power)


def _positive_power_single(b, a, y):
    """Through float64, whose spare bits make up for what large exponents lose."""
    e, m = decompose(b, b.cast(a, dtypes.float64))
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    log2 = b.fma(b.fma(s * z, polynomial(b, z, c.LOG_SINGLE), s + s), float(LOG2_E), e)
    t = b.cast(y, dtypes.float64) * log2
    t = at_most(b, at_least(b, t, -200.0), 200.0)
    n = b.round(t)
    r = t - n
    return b.cast(b.fma(r, polynomial(b, r, c.EXP2_SINGLE), 1.0) * power_of_two(b, n), dtypes.float32)


def _positive_power_double(b, a, y):
    """2^(y log2(a)), the exponent as a pair of numbers."""
    e, m = decompose(b, a)
    high, low = log_pair(b, e, m, Fraction(1), LOG2_E)
    t, rest = two_product(b, y, high)
    rest = b.fma(y, low, rest)
    beyond = b.abs(t) > 1100.0
    rest = b.where(beyond, 0.0, rest) * float(LN2)
    t = at_most(b, at_least(b, t, -1100.0), 1100.0)
    n = b.round(t)
    r = t - n
    q = polynomial(b, r, c.EXP2_F64)
    w = r * q
    return scale(b, b.fma(r, q, b.fma(rest, w, rest)) + 1.0, n)


def cbrt(b, x):
    """Cube root: a polynomial for the first guess, then Halley's method, which triples the digits."""
    f = format_of(x)
    e, m = decompose(b, b.abs(x))
    third = b.round(e * (1 / 3))
    m = m * power_of_two(b, e - (third + third + third))  # 0.35 .. 2.83
    g = polynomial(b, m, c.CBRT)
    for _ in range(1 if f is F32 else 2):
        cube = g * g * g
        g = g - g * ((cube - m) / b.fma(cube, 2.0, m))
    # Newton's method once more, with the error of g^3 known exactly, for the last bit
    square, square_low = two_product(b, g, g)
    cube, cube_low = two_product(b, square, g)
    error = (cube - m) + b.fma(square_low, g, cube_low)
    g = g - error / (square * 3.0)
    y = b.copysign(g * power_of_two(b, third), x)
    return b.where((x == 0.0) | ~(b.abs(x) < INF), x, y)


def rsqrt(b, x):
    return 1.0 / b.sqrt(x)


def hypot(b, x, y):
    """sqrt(x^2 + y^2) without overflow; infinite if either is, even when the other is NaN."""
    ax, ay = b.abs(x), b.abs(y)
    infinite = (ax == INF) | (ay == INF)
    if format_of(x) is F32:
        wide, wide_y = b.cast(ax, dtypes.float64), b.cast(ay, dtypes.float64)
        root = b.cast(b.sqrt(b.fma(wide, wide, wide_y * wide_y)), dtypes.float32)
        return b.where(infinite, INF, root)
    large, small = b.where(ax > ay, ax, ay), b.where(ax > ay, ay, ax)
    high, tiny = large > 2.0**500, large < 2.0**-400
    one = b.const(1.0, x.dtype)
    down = b.where(high, 2.0**-600, b.where(tiny, 2.0**600, one))
    up = b.where(high, 2.0**600, b.where(tiny, 2.0**-600, one))
    large, small = large * down, small * down
    square, rest = two_product(b, large, large)
    other, other_rest = two_product(b, small, small)
    total = square + other
    lost = (square - total) + other + (rest + other_rest)
    root = b.sqrt(total)
    # one Newton step with the exact residue
    positive = b.where(total > 0.0, root, 1.0)
    residue = (b.fma(-root, root, total) + lost) / (positive + positive)
    return b.where(infinite, INF, (root + residue) * up)
