"""exp and its kin: x = n ln 2 + r, e^x = 2^n e^r, with e^r a polynomial and 2^n put together from bits."""

from __future__ import annotations

from tandem.codegen.mathlib import coefficients as c
from tandem.codegen.mathlib.numbers import (
    F32,
    F64,
    LN2,
    LOG2_E,
    at_least,
    at_most,
    format_of,
    polynomial,
    scale,
    split,
)

# Beyond these arguments the result is 0 or infinity, and a little beyond the arithmetic below still says so by itself.
_EXP_BOUNDS = {F32: (-104.0, 89.0), F64: (-746.0, 710.0)}
_EXP2_BOUNDS = {F32: (-151.0, 129.0), F64: (-1076.0, 1025.0)}


def exp(b, x):
    if b.approximates and format_of(x) is F32:
        return b.exp_near(x)
    return _exp_below(b, at_most(b, x, _EXP_BOUNDS[format_of(x)][1]))


def _exp_below(b, x):
    """exp of what is below its bound."""
    if b.approximates and format_of(x) is F32:
        return b.exp_near(x)
    e, s1, s2 = exp_parts(b, at_least(b, x, _EXP_BOUNDS[format_of(x)][0]))
    return e * s1 * s2


def exp_parts(b, x, rest=None, table=None):
    """(p, s1, s2) with e^(x + rest) = p * s1 * s2, for x within the bounds and a tiny rest.

    The powers of two are scaled in separately, so that results may be denormal. They come out of the sum t that rounds to
    n: its low bits are k = n + 2 bias, the exponent fields of s1 and s2 are k / 2 rounded down and up.
    """
    f = format_of(x)
    if not b.as_written:
        e = b.exp(x)
        return e if rest is None else b.fma(e, rest, e), 1.0, 1.0
    offset = f.magic + 2 * f.bias
    t = b.fma(x, float(LOG2_E), offset)
    n = t - offset
    k = b.bitcast(t, f.uint)
    half = k >> 1
    s1 = b.bitcast(half << f.fraction, f.dtype)
    s2 = b.bitcast((k - half) << f.fraction, f.dtype)
    high, low = split(LN2, f)
    r = b.fma(n, -low, b.fma(n, -high, x))
    if rest is not None:
        r = r + rest
    q = polynomial(b, r, table or (c.EXP_F32 if f is F32 else c.EXP_F64))
    return b.fma(b.fma(q, r, 1.0), r, 1.0), s1, s2


def exp2(b, x):
    f = format_of(x)
    low, high = _EXP2_BOUNDS[f]
    x = at_most(b, at_least(b, x, low), high)
    n = b.round(x)
    r = x - n
    q = polynomial(b, r, c.EXP2_F32 if f is F32 else c.EXP2_F64)
    return scale(b, b.fma(q, r, 1.0), n)


def expm1_parts(b, x, offset: int):
    """(q, s) with e^x = 2^n (1 + q), q good to its last bits, and s = 2^(n + offset)."""
    f = format_of(x)
    shift = f.magic + f.bias + offset
    t = b.fma(x, float(LOG2_E), shift)
    n = t - shift
    s = b.bitcast(b.bitcast(t, f.uint) << f.fraction, f.dtype)
    high, low = split(LN2, f)
    r = b.fma(n, -low, b.fma(n, -high, x))
    q = polynomial(b, r, c.EXPM1_F32 if f is F32 else c.EXPM1_F64)
    return b.fma(r * r, q, r), s


def expm1(b, x):
    """e^x - 1, also near zero."""
    f = format_of(x)
    bounded = at_most(b, at_least(b, x, -60.0), _EXP_BOUNDS[f][1])
    q, half = expm1_parts(b, bounded, -1)  # 2^n itself would overflow a little too early
    y = b.fma(half, q, half - 0.5)
    y = y + y
    return b.where(b.abs(x) < 2.0 ** -(f.fraction + 2), x, y)  # keeps -0.0 and the last bit of denormal numbers


def sigmoid(b, x):
    """1 / (1 + e^-x), with small values where x is very negative rather than zero."""
    z = _exp_below(b, -b.abs(x))
    return b.where(x < 0.0, z, 1.0) / (z + 1.0)
