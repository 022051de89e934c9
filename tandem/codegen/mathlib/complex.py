"""Math functions of complex numbers, by functions of their real and imaginary parts.

z = x + iy throughout. Branch cuts, signed zeros and infinities are those of C99 (Annex G) and the Array API standard. Branches are
selections, so everything vectorises; what several selections share is one expression.
"""

from __future__ import annotations

import math

from tandem.codegen.mathlib.logarithm import _natural
from tandem.codegen.mathlib.numbers import F32, INF, LN2, NAN, decompose, format_of, power_of_two, two_product, two_sum
from tandem.codegen.mathlib.trigonometric import sin_cos

# Beyond `bound` e^x may overflow although e^x cos(y) does not: e^(x - shift) comes first, e^shift last.
_SHIFT = {"float32": (80.0, 40.0), "float64": (700.0, 300.0)}


def _parts(b, z):
    return b.real(z), b.imag(z)


def _finite(b, x):
    return b.abs(x) < INF


def _shifted(b, x):
    """(x made smaller where e^|x| could overflow, the factor that it then lacks)."""
    bound, shift = _SHIFT[x.dtype.name]
    one = b.const(1.0, x.dtype)
    big = b.abs(x) > bound
    return b.where(big, x - b.copysign(b.const(shift, x.dtype), x), x), b.where(big, math.exp(shift), one)


# -- exponentials


def exp(b, z):
    x, y = _parts(b, z)
    size, more, _ = _size(b, x)
    sine, cosine = sin_cos(b, y)
    return _along(b, x, y, size * cosine * more, size * sine * more)


def _size(b, x):
    """(e^x made smaller where it could overflow, the factor that it then lacks, where that is)."""
    bound, shift = _SHIFT[x.dtype.name]
    big = x > bound
    return b.exp(b.where(big, x - shift, x)), b.where(big, math.exp(shift), b.const(1.0, x.dtype)), big


def _along(b, x, y, re, im, low: float = 0.0):
    """e^x in the direction of y, put right where x is infinite and y has no direction, and on the real axis.
    `low` is the limit for x = -inf."""
    lost = ~_finite(b, y)
    re = b.where(lost & (x == INF), INF, b.where(lost & (x == -INF), low, re))
    im = b.where(y == 0.0, y, b.where(lost & (x == -INF), 0.0, im))
    re = b.where((y == 0.0) & b.isnan(x), x, re)
    return b.complex(re, im)


def exp2(b, z):
    x, y = _parts(b, z)
    ln2 = float(LN2)
    return exp(b, b.complex(x * ln2, y * ln2))


def expm1(b, z):
    """With s = sin(y / 2), c = cos(y / 2): (e^x - 1) (1 - 2s^2) - 2s^2 + 2i e^x s c"""
    x, y = _parts(b, z)
    s, c = sin_cos(b, y * 0.5)
    double = s * s * 2.0
    size, more, big = _size(b, x)
    minus = b.where(x == 0.0, 0.0, b.expm1(x))  # no -0: as exp(z) - 1, and as the standard has it
    cosine = 1.0 - double
    re = b.where(big, size * cosine * more, minus * cosine - double)
    result = _along(b, x, y, re, size * (s * c * 2.0) * more, low=-1.0)
    return b.complex(b.where(y == 0.0, minus, b.where(x == -INF, -1.0, b.real(result))), b.imag(result))


def sigmoid(b, z):
    """1 / (1 + e^-z), with the power of e that does not overflow."""
    left = b.real(z) < 0.0
    e = exp(b, b.where(left, z, -z))
    whole = b.const(1.0, z.dtype) / (e + 1.0)
    return b.where(left, e * whole, whole)


# -- logarithms


def _log_of_squares(b, x, y, x_low=None):
    """log |x + x_low + iy|, to all digits also where that is near 0, with squares kept from overflow and underflow."""
    single = format_of(x) is F32
    high, low, k = (2.0**60, 2.0**-40, 80) if single else (2.0**500, 2.0**-400, 600)
    largest = b.max(b.abs(x), b.abs(y))
    one, zero = b.const(1.0, x.dtype), b.const(0.0, x.dtype)
    big, small = largest > high, largest < low
    scale = b.where(big, 2.0**-k, b.where(small, 2.0**k, one))
    shift = b.where(big, 2.0 * k, b.where(small, -2.0 * k, zero))
    x, y = x * scale, y * scale
    p, p_low = two_product(b, x, x)
    q, q_low = two_product(b, y, y)
    s, s_low = two_sum(b, p, q)
    rest = s_low + (p_low + q_low)
    if x_low is not None:
        x_low = x_low * scale
        rest = rest + b.fma(x + x, x_low, x_low * x_low)
    e, m = decompose(b, s)
    near = b.abs(rest) < INF  # not where something was infinite
    f = b.where(near, b.fma(rest, power_of_two(b, -e), m - 1.0), m - 1.0)
    y = _natural(b, e + shift, f) * 0.5
    return b.where(s == 0.0, -INF, b.where(s == INF, INF, b.where(b.isnan(s), NAN, y)))


def _log(b, x, y, x_low=None):
    size = _log_of_squares(b, x, y, x_low)
    infinite = (b.abs(x) == INF) | (b.abs(y) == INF)
    return b.complex(b.where(infinite, INF, size), b.atan2(y, x))


def log(b, z):
    return _log(b, *_parts(b, z))


def log1p(b, z):
    """log(1 + z), where 1 + x keeps what it would round away."""
    x, y = _parts(b, z)
    u, lost = two_sum(b, x, b.const(1.0, x.dtype))
    result = _log(b, u, y, b.where(_finite(b, x), lost, 0.0))
    origin = (x == 0.0) & (y == 0.0)
    return b.complex(b.where(origin, x, b.real(result)), b.imag(result))


def _to_base(b, z, base: float):
    z = log(b, z)
    factor = 1 / math.log(base)
    return b.complex(b.real(z) * factor, b.imag(z) * factor)


def log2(b, z):
    return _to_base(b, z, 2.0)


def log10(b, z):
    return _to_base(b, z, 10.0)


# -- powers


def sqrt(b, z):
    """t = sqrt((|x| + |z|) / 2) is the larger part; the other is y / 2t. Scaled by powers of 4 at both ends."""
    x, y = _parts(b, z)
    single = format_of(x) is F32
    high, low, k = (2.0**126, 2.0**-100, 48) if single else (2.0**1022, 2.0**-960, 108)
    largest = b.max(b.abs(x), b.abs(y))
    one = b.const(1.0, x.dtype)
    big, small = largest > high, largest < low
    scale = b.where(big, 0.0625, b.where(small, 2.0**k, one))
    back = b.where(big, 4.0, b.where(small, 2.0 ** (-k // 2), one))
    xs, ys = x * scale, y * scale
    t = b.sqrt((b.abs(xs) + b.hypot(xs, ys)) * 0.5)
    zero = t == 0.0
    other = b.where(zero, b.abs(ys), b.abs(ys) / (b.where(zero, one, t) * 2.0)) * back
    t = t * back
    right = x >= 0.0
    re = b.where(right, t, b.where(zero, t, other))
    im = b.where(right, other, t)
    endless = b.abs(y) == INF
    right_nan = b.isnan(x)
    re = b.where(endless, INF, b.where(right_nan, x, re))
    im = b.where(endless, INF, b.where(right_nan, x, im))
    return b.complex(re, b.copysign(im, y))


def rsqrt(b, z):
    return b.const(1.0, z.dtype) / sqrt(b, z)


def pow(b, z, w):
    """e^(w log z); 0 to powers with a positive real part is 0, and everything to the power of 0 is 1."""
    result = exp(b, w * log(b, z))
    one, zero, nothing = (b.const(v, z.dtype) for v in (1.0, 0.0, complex(NAN, NAN)))
    at_zero = b.where(b.real(w) > 0.0, zero, nothing)
    return b.where(w == 0.0, one, b.where(z == 0.0, at_zero, result))


# -- hyperbolic functions, and by them the trigonometric ones


def sinh(b, z):
    x, y = _parts(b, z)
    less, more = _shifted(b, x)
    sine, cosine = sin_cos(b, y)
    re, im = b.sinh(less) * cosine * more, b.cosh(less) * sine * more
    lost = ~_finite(b, y)
    re = b.where(lost & ((x == 0.0) | (b.abs(x) == INF)), x, re)
    return b.complex(b.where((y == 0.0) & b.isnan(x), x, re), b.where(y == 0.0, y, im))


def cosh(b, z):
    x, y = _parts(b, z)
    less, more = _shifted(b, x)
    sine, cosine = sin_cos(b, y)
    re, im = b.cosh(less) * cosine * more, b.sinh(less) * sine * more
    lost = ~_finite(b, y)
    re = b.where(lost & (b.abs(x) == INF), INF, re)
    # where one factor is 0 the other does not matter; the sign is that of both
    zero = b.copysign(b.const(0.0, x.dtype), x) * b.copysign(b.const(1.0, x.dtype), y)
    im = b.where((y == 0.0) | (lost & (x == 0.0)), zero, im)
    return b.complex(b.where((y == 0.0) & b.isnan(x), x, re), im)


def tanh(b, z):
    """(sinh(x) cosh(x) + i sin(y) cos(y)) / (sinh(x)^2 + cos(y)^2); where sinh(x)^2 would overflow, 1 + 0i."""
    x, y = _parts(b, z)
    bound = 43.0 if format_of(x) is F32 else 353.0
    one, zero = b.const(1.0, x.dtype), b.const(0.0, x.dtype)
    size = b.abs(x)
    far = size > bound
    near = b.copysign(b.where(far, one, size), x)
    sinh_x, (sine, cosine) = b.sinh(near), sin_cos(b, y)
    below = sinh_x * sinh_x + cosine * cosine
    turn = sine * cosine
    re = b.where(far, b.copysign(one, x), sinh_x * b.cosh(near) / below)
    im = b.where(far, turn * 0.0, turn / below)
    lost = ~_finite(b, y)
    re = b.where(lost, b.where(size == INF, re, b.where(x == 0.0, x, NAN)), re)
    im = b.where(size == INF, b.copysign(zero, y), b.where(y == 0.0, y, im))
    return b.complex(b.where(b.isnan(x), x, re), im)


def _turned(b, z):
    """i z"""
    return b.complex(-b.imag(z), b.real(z))


def _turned_back(b, z):
    """-i z"""
    return b.complex(b.imag(z), -b.real(z))


def sin(b, z):
    return _turned_back(b, sinh(b, _turned(b, z)))


def cos(b, z):
    return cosh(b, _turned(b, z))


def tan(b, z):
    return _turned_back(b, tanh(b, _turned(b, z)))


# -- inverse functions


def _roots(b, x, y):
    """The parts of sqrt(1 - z) and sqrt(1 + z), for z that is not infinite."""
    return (*_root(b, 1.0 - x, -y), *_root(b, x + 1.0, y))


def _root(b, x, y):
    t = b.sqrt(b.abs(x) * 0.5 + b.hypot(x, y) * 0.5)
    zero = t == 0.0
    other = b.where(zero, b.abs(y), b.abs(y) * 0.5 / b.where(zero, 1.0, t))
    right = x >= 0.0
    return b.where(right, t, other), b.copysign(b.where(right, other, t), y)


def _bounded(b, x, y):
    """(whether z is infinite, x and y without the infinities)"""
    endless = (b.abs(x) == INF) | (b.abs(y) == INF)
    one = b.const(1.0, x.dtype)
    return endless, b.where(endless, one, x), b.where(endless, one, y)


def asin(b, z):
    """Kahan's: no term cancels another."""
    x, y = _parts(b, z)
    endless, u, v = _bounded(b, x, y)
    p, p_im, q, q_im = _roots(b, u, v)
    re = b.atan2(u, p * q - p_im * q_im)
    im = b.asinh(p * q_im - p_im * q)
    re = b.where(endless, b.atan2(x, b.abs(y)), b.where(x == 0.0, x, re))
    im = b.where(endless, b.copysign(b.const(INF, x.dtype), y), im)
    return b.complex(re, im)


def acos(b, z):
    x, y = _parts(b, z)
    endless, u, v = _bounded(b, x, y)
    p, p_im, q, q_im = _roots(b, u, v)
    re = b.atan2(p, q) * 2.0
    im = b.asinh(q * p_im - q_im * p)
    re = b.where(endless, b.atan2(b.abs(y), x), b.where((x == 0.0) & b.isnan(y), math.pi / 2, re))
    im = b.where(endless, -b.copysign(b.const(INF, x.dtype), y), im)
    return b.complex(re, im)


def asinh(b, z):
    return _turned_back(b, asin(b, _turned(b, z)))


def acosh(b, z):
    """i acos(z) or -i acos(z): the one in the right half plane."""
    w = acos(b, z)
    return b.complex(b.abs(b.imag(w)), b.copysign(b.real(w), b.imag(z)))


def atanh(b, z):
    """log1p(4x / ((1 - x)^2 + y^2)) / 4 + i atan2(2y, (1 - x)(1 + x) - y^2) / 2, for x >= 0; odd in x."""
    x, y = _parts(b, z)
    k, huge = (60, 2.0**40) if format_of(x) is F32 else (500, 2.0**400)
    endless, u, v = _bounded(b, x, y)
    a = b.abs(u)
    one, zero = b.const(1.0, x.dtype), b.const(0.0, x.dtype)
    distance = b.hypot(1.0 - a, v)  # from 1
    size = b.hypot(a, v)
    near, far = distance < 2.0**-k, size > huge
    # very near, the distance is taken 2^k times as large, and its logarithm as much larger
    d = b.where(far, one, distance * b.where(near, 2.0**k, one))
    re = b.log1p(b.where(far, one, a) * 4.0 / (d * d)) * 0.25 + b.where(near, k * float(LN2) * 0.5, zero)
    large = b.where(far, size, one)
    re = b.where(far, a / large / large, re)
    re = b.where(x == 0.0, x, b.copysign(b.where(endless, zero, re), x))
    angle = b.atan2(v + v, (1.0 - a) * (a + 1.0) - v * v) * 0.5
    limit = b.copysign(b.const(math.pi / 2, x.dtype), y)
    return b.complex(re, b.where(endless | far, b.where(b.isnan(y), y, limit), angle))


def atan(b, z):
    return _turned_back(b, atanh(b, _turned(b, z)))
