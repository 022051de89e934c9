"""Modified Bessel functions of the first kind of order 0 and 1, plain and times exp(-|x|). Computed in float64."""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.mathlib import special_coefficients as c
from tandem.codegen.mathlib.exponential import exp
from tandem.codegen.mathlib.numbers import F32, INF, at_least, at_most, format_of, polynomial

_NEAR = 6.0  # up to here a polynomial in x, then one in 1 / x


def _modified(b, x, near, far, odd: bool, scaled: bool):
    single = format_of(x) is F32
    if single:
        x = b.cast(x, dtypes.float64)
    a = b.abs(x)
    inside = polynomial(b, at_most(b, a, _NEAR) * (2.0 / _NEAR) - 1.0, near)
    outside = at_least(b, a, _NEAR)
    beyond = polynomial(b, (2.0 * _NEAR) / outside - 1.0, far) / b.sqrt(outside)
    y = b.where(a <= _NEAR, inside * a if odd else inside, beyond)
    if not scaled:  # in two halves, the first of which does not overflow where the result does not
        half = exp(b, a * 0.5)
        y = b.where(a == INF, INF, y * half * half)
    y = b.where(x < 0.0, -y, y) if odd else y
    return b.cast(y, dtypes.float32) if single else y


def _tables(x, order: int):
    if format_of(x) is F32:
        return (c.I0_NEAR_F32, c.I0_FAR_F32) if order == 0 else (c.I1_NEAR_F32, c.I1_FAR_F32)
    return (c.I0_NEAR_F64, c.I0_FAR_F64) if order == 0 else (c.I1_NEAR_F64, c.I1_FAR_F64)


def bessel_i0(b, x):
    return _modified(b, x, *_tables(x, 0), False, False)


def bessel_i0e(b, x):
    return _modified(b, x, *_tables(x, 0), False, True)


def bessel_i1(b, x):
    return _modified(b, x, *_tables(x, 1), True, False)


def bessel_i1e(b, x):
    return _modified(b, x, *_tables(x, 1), True, True)
