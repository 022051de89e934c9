"""Hyperbolic functions and their inverses, from exponentials and logarithms that keep their accuracy near zero."""

from __future__ import annotations

from tandem.codegen.mathlib import coefficients as c
from tandem.codegen.mathlib.exponential import exp_parts, expm1_parts
from tandem.codegen.mathlib.numbers import F32, F64, LN2, LOG2_E, NAN, at_least, at_most, format_of, polynomial

_SINH_BOUND = {F32: 90.0, F64: 711.0}
_TANH_BOUND = {F32: 10.0, F64: 22.0}  # from here on it is 1


def tanh(b, x):
    f = format_of(x)
    if f is F32 and not b.approximates:
        return _tanh_by_addition(b, at_most(b, at_least(b, x, -_TANH_BOUND[f]), _TANH_BOUND[f]))
    a = at_most(b, b.abs(x), _TANH_BOUND[f])
    if f is F32:
        # 1 - 2 / (e^2|x| + 1) by the instructions, which is less work; near zero a polynomial, which keeps all digits
        large = b.div_near(b.const(-2.0, x.dtype), b.exp2_near(a * float(2 * LOG2_E)) + 1.0) + 1.0
        z = a * a
        small = b.fma(a * z, polynomial(b, z, c.TANH_F32), a)
        return b.copysign(b.where(a < 0.55, small, large), x)
    # with u = e^2|x| - 1: u / (u + 2)
    q, s = expm1_parts(b, a + a, 0)
    u = b.fma(s, q, s - 1.0)
    return b.copysign(b.div_near(u, u + 2.0), x)


def _tanh_by_addition(b, x):
    """For float32 within _TANH_BOUND: with x = n ln 2 / 2 + r and s = 2^n, tanh(x - r) is (s - 1) / (s + 1), and tanh x by the
    theorem of addition ((s + 1) tanh r - (1 - s)) / ((s + 1) - (1 - s) tanh r).

    ln 2 in float32 is off by 2^-28 of itself. Where n is large enough for that to matter, tanh is near 1 and it does not. Numbers
    for -x are those for x times -1 or 1/s, so that results differ in their sign alone; and the sums are written so that -0.0
    stays what it is.

    With a factor and a term before it and a factor behind, its instructions take Zen 3 7.0 cycles for eight numbers if nothing ever
    waits (a quotient takes the place of two products); loops take 8.2. By halves, 2 P Q / (P^2 + Q^2) with P / Q = tanh(x / 2) of
    degrees 5 and 6, it is 7.9 and off by 3.5 units in the last place instead of 2.5.
    """
    shift = F32.magic + F32.bias
    t = b.fma(x, float(2 * LOG2_E), shift)
    s = b.bitcast(b.bitcast(t, F32.uint) << F32.fraction, F32.dtype)
    r = b.fma(t - shift, -float(LN2 / 2), x)
    z = r * r
    near = b.fma(r, b.fma(z, polynomial(b, z, c.TANH_NEAR_F32), 0.0), r)  # tanh r
    high, low = s + 1.0, 1.0 - s
    return b.div_near(b.fma(high, near, -low), b.fma(-low, near, high))


def sinh(b, x):
    f = format_of(x)
    a = b.abs(x)
    half = _half_exp(b, a)
    large = b.copysign(half - 0.25 / half, x)
    z = x * x
    small = b.fma(x * z, polynomial(b, z, c.SINH_F32 if f is F32 else c.SINH_F64), x)
    return b.where(a < 1.0, small, large)


def cosh(b, x):
    half = _half_exp(b, b.abs(x))
    return half + 0.25 / half


def _half_exp(b, a):
    """e^a / 2 for a >= 0, which overflows only where sinh does."""
    e, s1, s2 = exp_parts(b, at_most(b, a, _SINH_BOUND[format_of(a)]))
    return (e * 0.5) * s1 * s2


def asinh(b, x):
    """log(|x| + sqrt(x^2 + 1)), as log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))) to be good near zero."""
    a = b.abs(x)
    big = a > 2.0**60
    square = a * a
    inside = a + square / (b.sqrt(square + 1.0) + 1.0)
    y = b.log1p(b.where(big, a, inside)) + b.where(big, float(LN2), b.const(0.0, x.dtype))
    return b.copysign(y, x)


def acosh(b, x):
    """log(x + sqrt(x^2 - 1)), in terms of t = x - 1."""
    t = x - 1.0
    big = x > 2.0**60
    inside = t + b.sqrt(b.fma(t, t, t + t))
    y = b.log1p(b.where(big, x, inside)) + b.where(big, float(LN2), b.const(0.0, x.dtype))
    return b.where(x < 1.0, NAN, y)


def atanh(b, x):
    a = b.abs(x)
    return b.copysign(b.log1p((a + a) / (1.0 - a)) * 0.5, x)
