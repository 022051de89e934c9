"""The error function, its complement and its inverse."""

from __future__ import annotations

import math

from tandem import dtypes
from tandem.codegen.mathlib import coefficients as c
from tandem.codegen.mathlib import special_coefficients as special
from tandem.codegen.mathlib.exponential import exp_parts
from tandem.codegen.mathlib.numbers import F32, F64, INF, NAN, at_most, format_of, polynomial, two_product

_EDGE = 1.25  # up to here erf is an odd polynomial
_ERFC_BOUND = {F32: 10.1, F64: 27.3}  # from here on erfc is 0


def erf(b, x):
    a = b.abs(x)
    if format_of(x) is F32:
        # The eighth root of 1 - erf is nearly straight: a short polynomial, squared three times.
        root = polynomial(b, at_most(b, a, 4.0), c.ERF_BIG_F32)
        root = root * root
        root = root * root
        large = 1.0 - root * root
    else:
        large = 1.0 - _erfc_positive(b, a)
    return b.where(a < _EDGE, _erf_small(b, x), b.copysign(large, x))


def erfc(b, x):
    """1 - erf(x), without loss where it is small."""
    a = b.abs(x)
    tail = _erfc_positive(b, a)
    large = b.where(x < 0.0, 2.0 - tail, tail)
    return b.where(a < 0.5, 1.0 - _erf_small(b, x), large)


def _erf_small(b, x):
    z = x * x
    return b.fma(x, polynomial(b, z, c.ERF_F32 if format_of(x) is F32 else c.ERF_F64), x)


def _erfc_positive(b, a):
    """erfc for a >= 0.4: exp(-a^2) / (1 + 2a) times a function that varies little, in t = (a - 4) / (a + 4)."""
    f = format_of(a)
    a = at_most(b, a, _ERFC_BOUND[f])
    if f is F32:  # float64 in between, with polynomials as long as float32 needs
        a = b.cast(a, dtypes.float64)
    smooth = polynomial(b, (a - 4.0) / (a + 4.0), c.ERFC_SINGLE if f is F32 else c.ERFC_F64)
    square, rest = two_product(b, a, a)  # what a^2 loses would be multiplied by a^2
    e, s1, s2 = exp_parts(b, -square, -rest, c.EXP_SINGLE if f is F32 else None)
    return b.cast((e * smooth / b.fma(a, 2.0, 1.0)) * s1 * s2, f.dtype)


def erfinv(b, x):
    """In the middle a polynomial in x^2, then one in s = sqrt(-log(1 - x^2)) near and one far."""
    f = format_of(x)
    a = b.abs(x)
    z = a * a
    middle = b.fma(a, polynomial(b, z, c.ERFINV_F32 if f is F32 else c.ERFINV_F64), a)
    s = b.sqrt(-b.log(b.fma(-a, a, 1.0)))
    near, far = (c.ERFINV_NEAR_F32, c.ERFINV_FAR_F32) if f is F32 else (c.ERFINV_NEAR_F64, c.ERFINV_FAR_F64)
    far_middle = 3.0 if f is F32 else 4.1
    tail = s + b.where(s < 2.0, polynomial(b, s - 1.25, near), polynomial(b, s - far_middle, far))
    if f is F64:
        # The polynomials give 25 bits; one step of Halley's method triples them. 1 - a is exact here.
        wrong = _erfc_positive(b, tail) - (1.0 - a)
        square, _ = two_product(b, tail, tail)
        e, s1, s2 = exp_parts(b, square)
        step = wrong * (e * s1 * s2) * (math.sqrt(math.pi) / 2)
        tail = b.where(a < 1.0, tail + step / (1.0 - tail * step), tail)
    y = b.where(a < 0.5, middle, b.where(a == 1.0, INF, tail))
    return b.copysign(b.where(a <= 1.0, y, NAN), x)


_ERFCX_FAR = (1.0, -0.5, 0.75, -1.875, 6.5625, -29.53125, 162.421875)  # of erfcx(a) a sqrt(pi), in 1 / a^2


def erfcx(b, x):
    """exp(x^2) erfc(x), which does not underflow for large x. float32 goes through float64."""
    if format_of(x) is F32:
        return b.cast(erfcx(b, b.cast(x, dtypes.float64)), dtypes.float32)
    a = b.abs(x)
    near = at_most(b, a, _ERFC_BOUND[F64])
    square, rest = two_product(b, near, near)
    e, s1, s2 = exp_parts(b, square, rest)
    growth = e * s1 * s2
    middle = polynomial(b, (near - 4.0) / (near + 4.0), c.ERFC_F64) / b.fma(near, 2.0, 1.0)
    r = 1.0 / a
    far = r * (1.0 / math.sqrt(math.pi)) * polynomial(b, r * r, _ERFCX_FAR)
    y = b.where(a < 0.5, growth * (1.0 - _erf_small(b, a)), b.where(a < 27.0, middle, far))
    return b.where(x < 0.0, b.where(a < 26.7, b.fma(growth, 2.0, -y), INF), y)


def ndtri(b, p):
    """Where the normal distribution function is p. As erfinv, with one more polynomial for what lies far out.

    float32 goes through float64, where the polynomials alone are exact enough; float64 takes one step of Halley's method on the
    logarithm of erfc.
    """
    single = format_of(p) is F32
    if single:
        p = b.cast(p, dtypes.float64)
    q = 2.0 * b.where(p > 0.5, 1.0 - p, p)
    a = 1.0 - q
    middle = b.fma(a, polynomial(b, a * a, c.ERFINV_F64), a)
    s = b.sqrt(-b.log(q * (2.0 - q)))
    # 1 / s from 1 / 27.3 to 1 / 5.5, moved to [-1, 1]
    low, high = 1.0 / 27.3, 1.0 / 5.5
    far = polynomial(b, (2.0 / s - (low + high)) * (1.0 / (high - low)), special.ERFC_INVERSE_TAIL)
    near = b.where(s < 2.0, polynomial(b, s - 1.25, c.ERFINV_NEAR_F64), polynomial(b, s - 4.1, c.ERFINV_FAR_F64))
    t = s + b.where(s < 5.7, near, far)
    if not single:
        scaled = polynomial(b, (t - 4.0) / (t + 4.0), c.ERFC_F64) / b.fma(t, 2.0, 1.0)  # erfcx(t)
        square, rest = two_product(b, t, t)
        wrong = (b.log(scaled) - b.log(q)) - square - rest
        slope = (-2.0 / math.sqrt(math.pi)) / scaled
        step = -wrong / slope
        t = t + step / (1.0 - step * (t + 0.5 * slope))
    size = b.where(a < 0.5, middle, t) * math.sqrt(2.0)
    size = b.where(q == 0.0, INF, size)
    y = b.where((p >= 0.0) & (p <= 1.0), b.where(p < 0.5, -size, size), NAN)
    return b.cast(y, dtypes.float32) if single else y
