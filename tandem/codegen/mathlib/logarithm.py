"""Logarithms: x = m 2^e with m about 1, log x = e ln 2 + log m.

float32 takes log(1 + f) as a polynomial in f. float64 takes it as a polynomial in s = f / (2 + f), which converges so much
faster that the division is worth it: log(1 + f) = log((1 + s) / (1 - s)) = 2s + s R(s^2).
"""

from __future__ import annotations

from fractions import Fraction

from tandem.codegen.mathlib import coefficients as c
from tandem.codegen.mathlib.numbers import (
    F32,
    F64,
    INF,
    LN2,
    LOG2_E,
    LOG10_2,
    LOG10_E,
    NAN,
    at_most,
    decompose,
    fast_two_sum,
    format_of,
    polynomial,
    power_of_two,
    split,
    two_product,
    two_sum,
)


def log(b, x):
    e, m = decompose(b, x)
    return _special(b, x, _natural(b, e, m - 1.0))


def log1p(b, x):
    """log(1 + x), also near zero."""
    u, lost = two_sum(b, x, b.const(1.0, x.dtype))
    e, m = decompose(b, u)
    # What 1 + x lost is put back; beyond 2^100 that makes no difference, but 2^-e might not be a normal number.
    f = b.fma(lost, power_of_two(b, -at_most(b, e, 100.0)), m - 1.0)
    return _special(b, u, b.where(x == 0.0, x, _natural(b, e, f)))


def log2(b, x):
    return _to_base(b, x, Fraction(1), LOG2_E)


def log10(b, x):
    return _to_base(b, x, LOG10_2, LOG10_E)


def logaddexp(b, x, y):
    """log(e^x + e^y) without overflow."""
    larger = b.where(x > y, x, y)
    sum_ = larger + _log1p_unit(b, b.exp(-b.abs(x - y)))
    return b.where(x == y, x + float(LN2), sum_)  # also where both are the same infinity


def softplus(b, x):
    """log(1 + e^x) without overflow."""
    return b.where(x < 0.0, 0.0, x) + _log1p_unit(b, b.exp(-b.abs(x)))


def _log1p_unit(b, x):
    """log(1 + x) for 0 <= x <= 1: there is little to take apart."""
    upper = x > 0.414
    one, zero = b.const(1.0, x.dtype), b.const(0.0, x.dtype)
    return _natural(b, b.where(upper, one, zero), b.where(upper, (x - 1.0) * 0.5, x))


def _special(b, x, y):
    """y, the logarithm of x, put right where x is zero, negative, infinite or NaN."""
    y = b.where(x < INF, y, x)
    outside = b.where(x == 0.0, b.const(-INF, x.dtype), b.const(NAN, x.dtype))
    return b.where(x > 0.0, y, outside)


def _natural(b, e, f):
    """e ln 2 + log(1 + f)."""
    high, low = split(LN2, format_of(f))
    if format_of(f) is F32:
        tail = f * f * polynomial(b, f, c.LOG_F32)
        return b.fma(e, high, f + b.fma(e, low, tail))
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    # 2s = f - f^2/2 + s f^2/2, where the first terms carry no error.
    tail = b.fma(s, b.fma(z, polynomial(b, z, c.LOG_F64), half_square), e * low)
    return b.fma(e, high, f - (half_square - tail))


def _to_base(b, x, per_two: Fraction, per_e: Fraction):
    """The logarithm to the base for which log(2) is per_two and log(e) is per_e."""
    f = format_of(x)
    e, m = decompose(b, x)
    if f is F32:
        high, low = split(per_e, F32)
        two_high, two_low = split(per_two, F32)
        d = m - 1.0
        tail = d * d * polynomial(b, d, c.LOG_F32)
        tail = b.fma(d, low, b.fma(tail, high, e * two_low))
        return _special(b, x, b.fma(e, two_high, b.fma(d, high, tail)))
    high, low = log_pair(b, e, m, per_two, per_e)
    return _special(b, x, high + low)


def log_pair(b, e, m, per_two: Fraction, per_e: Fraction):
    """(high, low) whose sum is per_two * e + per_e * log(m) to some 65 bits; float64."""
    f = m - 1.0
    # s = f / (2 + f) as a pair
    d, d_low = fast_two_sum(b, b.const(2.0, f.dtype), f)
    reciprocal = 1.0 / d
    s = f * reciprocal
    s_low = (b.fma(-s, d, f) - s * d_low) * reciprocal
    # z = s^2, then s^3, then 2/3 s^3, as pairs; the rest of the series is small enough for single numbers
    z, z_low = two_product(b, s, s)
    z_low = b.fma(s + s, s_low, z_low)
    cube, cube_low = two_product(b, s, z)
    cube_low = cube_low + b.fma(s, z_low, s_low * z)
    third, third_low = split(Fraction(2, 3), F64)
    term, term_low = two_product(b, cube, b.const(third, f.dtype))
    term_low = term_low + b.fma(cube, third_low, cube_low * third)
    tail = cube * z * polynomial(b, z, c.LOG_TAIL)
    high, low = fast_two_sum(b, s + s, term)
    low = low + ((s_low + s_low) + (term_low + tail))
    high, low = fast_two_sum(b, high, low)
    # times per_e, plus e times per_two
    k, k_low = split(per_e, F64)
    p, p_low = two_product(b, high, b.const(k, f.dtype))
    p_low = p_low + b.fma(high, k_low, low * k)
    if per_two == 1:
        high, low = fast_two_sum(b, e, p)
        return high, low + p_low
    k, k_low = split(per_two, F64)
    q, q_low = two_product(b, e, b.const(k, f.dtype))
    q_low = b.fma(e, k_low, q_low)
    high, low = fast_two_sum(b, q, p)
    return high, low + (q_low + p_low)
