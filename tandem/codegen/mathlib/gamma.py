"""lgamma and digamma. float32 goes through float64.

Near zero relative accuracy is kept for lgamma at 1 and 2; where else they cross zero the error is small against 1.
"""

from __future__ import annotations

from fractions import Fraction

from tandem import dtypes
from tandem.codegen.mathlib import coefficients as c
from tandem.codegen.mathlib.numbers import F32, INF, NAN, PI, format_of, polynomial

_BERNOULLI = [
    Fraction(*ratio)
    for ratio in ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510), (43867, 798))
]  # B_2, B_4, ...
_STIRLING = tuple(float(B / (2 * k * (2 * k - 1))) for k, B in enumerate(_BERNOULLI, 1))
_DIGAMMA = tuple(float(B / (2 * k)) for k, B in enumerate(_BERNOULLI, 1))
_HALF_LOG_2PI = 0.9189385332046727418
_FAR = 9.0  # from here on Stirling's series is good to the last bit


def lgamma(b, x):
    """log |gamma(x)|."""
    if format_of(x) is F32:
        return b.cast(lgamma(b, b.cast(x, dtypes.float64)), dtypes.float32)
    a = b.abs(x)
    y = _lgamma_positive(b, a)
    # gamma(-a) gamma(a) = -pi / (a sin(pi a)); for tiny a, where that might underflow, gamma(-a) is -1 / a
    tiny = a < 1e-17
    mirrored = b.log(b.where(tiny, a, b.abs(_sin_pi(b, a) * a) * float(1 / PI)))
    y = b.where(x < 0.0, -(mirrored + b.where(tiny, 0.0, y)), y)
    y = b.where((x <= 0.0) & (b.floor(x) == x), INF, y)
    return b.where(a == INF, INF, y)


def _lgamma_positive(b, x):
    # Near: move to 2 + offset in [1.5, 3) by gamma(z + 1) = z gamma(z), keeping 1 and 2, where lgamma is 0, at offset 0
    z, product = x, b.const(1.0, x.dtype)
    for _ in range(int(_FAR) - 3):
        step = z >= 3.0
        z = b.where(step, z - 1.0, z)
        product = b.where(step, product * z, product)
    offset = b.where(x < 0.5, x, b.where(x < 1.5, x - 1.0, z - 2.0))
    product = b.where(x < 0.5, b.fma(x, x, x), b.where(x < 1.5, x, product))
    far_out = x > _FAR
    logarithm = b.log(b.where(far_out, x, product))
    near = b.fma(offset, polynomial(b, offset, c.LGAMMA), b.where(x < 1.5, -logarithm, logarithm))
    # Far: Stirling's series
    r = 1.0 / x
    series = r * polynomial(b, r * r, _STIRLING)
    far = b.fma(x - 0.5, logarithm, -x) + (_HALF_LOG_2PI + series)
    far = b.where(x > 1e17, x * (logarithm - 1.0), far)
    return b.where(far_out, far, near)


def digamma(b, x):
    """The derivative of lgamma. NaN at the poles -1, -2, ...; at zero infinite, with the sign against zero's."""
    if format_of(x) is F32:
        return b.cast(digamma(b, b.cast(x, dtypes.float64)), dtypes.float32)
    negative = x < 0.0
    z = b.where(negative, 1.0 - x, x)
    # psi(z) = psi(z + n) - 1/z - ... - 1/(z + n - 1), two fractions at a time to halve the divisions
    total = b.const(0.0, x.dtype)
    for _ in range(5):
        step = z < _FAR
        pair = b.fma(z, 2.0, 1.0) / (z * (z + 1.0))
        total = b.where(step, total + pair, total)
        z = b.where(step, z + 2.0, z)
    r = 1.0 / z
    square = r * r
    far = b.log(z) - (r * 0.5 + square * polynomial(b, square, _DIGAMMA)) - total
    mirrored = far - float(PI) * _cos_pi(b, x) / _sin_pi(b, x)
    y = b.where(negative, mirrored, far)
    y = b.where(negative & (b.floor(x) == x), NAN, y)
    y = b.where(x == 0.0, b.copysign(b.const(INF, x.dtype), -x), y)
    return b.where(x == INF, INF, y)


def _sin_pi(b, x):
    """sin(pi x), exact in its zeros."""
    n = b.round(x)
    return _parity_sign(b, n, _sin_wide(b, (x - n) * float(PI)))


def _cos_pi(b, x):
    n = b.round(x)
    r = (0.5 - b.abs(x - n)) * float(PI)
    return _parity_sign(b, n, _sin_wide(b, r))


def _sin_wide(b, r):
    z = r * r
    return b.fma(r * z, polynomial(b, z, c.SIN_WIDE_F64), r)


def _parity_sign(b, n, y):
    half = n * 0.5
    return b.where(b.floor(half) == half, y, -y)
