"""Modified Bessel functions of the first kind of order 0 and 1, plain and times exp(-|x|); those of the second kind, for float32.
Computed in float64."""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.mathlib import special_coefficients as c
from tandem.codegen.mathlib.numbers import (
    F32,
    F64,
    INF,
    NAN,
    PI,
    at_least,
    at_most,
    format_of,
    polynomial,
    split,
)  # fmt: skip
from tandem.codegen.mathlib.trigonometric import sin_near

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
        half = b.exp(a * 0.5)
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


_TURNING = 8.0  # up to here Y is a polynomial and a logarithm, then it turns like sine and cosine


def _second(b, x, order: int):
    """Y, as exactly as float32 needs it. Beyond 2^40, where it is below 1e-6, it keeps its size but not its phase."""
    near, inner, p, q = (c.Y0_NEAR, c.J0_NEAR, c.Y0_P, c.Y0_Q) if order == 0 else (c.Y1_NEAR, c.J1_NEAR, c.Y1_P, c.Y1_Q)
    wide = b.cast(x, dtypes.float64)
    low = at_most(b, wide, _TURNING)
    t = b.fma(low * low, 2.0 / _TURNING**2, -1.0)
    logarithm = b.cast(b.log(x), dtypes.float64)
    inside = b.fma(logarithm * float(2 / PI), polynomial(b, t, inner), polynomial(b, t, near))
    if order:
        inside = b.fma(low, inside, float(-2 / PI) / low)
    high = at_most(b, at_least(b, wide, _TURNING), 2.0**40)
    u = _TURNING / high
    w = b.fma(u * u, 2.0, -1.0)
    # The angle less (2 order + 1) pi / 4, brought within half a turn; both functions change their sign with every one.
    shift = float((2 * order + 1) * PI / 4)
    n = b.round(b.fma(high, float(1 / PI), (2 * order + 1) * -0.25))
    r = high
    for part in split(PI, F64, 2):
        r = b.fma(n, -part, r)
    r = r - shift
    half = sin_near(b, r * 0.5)
    turned = polynomial(b, w, p) * sin_near(b, r) + polynomial(b, w, q) * u * b.fma(half, half * -2.0, 1.0)
    signed = b.where(b.floor(n * 0.5) * 2.0 == n, turned, -turned)
    outside = signed * b.sqrt(float(2 / PI) / at_least(b, wide, _TURNING))
    y = b.cast(b.where(wide <= _TURNING, inside, outside), x.dtype)
    return b.where(x > 0.0, y, b.where(x == 0.0, -INF, b.const(NAN, x.dtype)))


def bessel_y0(b, x):
    return _second(b, x, 0)


def bessel_y1(b, x):
    return _second(b, x, 1)
