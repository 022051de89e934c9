"""sin, cos and tan.

Note [Range reduction]
x is brought near zero by subtracting n pi, with pi as a sum of two or three float64 numbers (Cody and Waite). Each product
is exact inside the fused multiply-add, and the first subtraction has no rounding at all as long as n has at most 51 bits:
both operands are multiples of the same power of two, and what remains of them fits. n itself is off by a little for large
x, which the polynomials allow for up to |x| = 2^48, where neighbouring float64 numbers are 1/16 apart. Beyond, the angle
is first brought within half a turn with as many bits of pi as that takes (Note [Argument reduction] in llvm/angle.py), which a
kernel does in a branch of its own: the only one in these functions. float32 takes the same way through float64.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen.mathlib import coefficients as c
from tandem.codegen.mathlib.numbers import F32, F64, PI, at_least, at_most, flip_sign, format_of, polynomial, split

LIMIT = 2.0**48


def sin(b, x):
    """x = n pi + r: (-1)^n sin(r). The sign goes onto r, as sin is odd."""
    wide = _limited(b, x)
    t = b.fma(wide, float(1 / PI), F64.magic)
    r = _subtract(b, wide, t - F64.magic, PI, format_of(x))
    r = flip_sign(b, r, b.bitcast(t, dtypes.uint64) << 63)
    return b.where(x == 0.0, x, _sin_wide(b, b.cast(r, x.dtype)))  # keeps -0.0


def cos(b, x):
    """x = (n + 1/2) pi + r: -(-1)^n sin(r)."""
    wide = b.abs(_limited(b, x))
    t = b.fma(wide, float(1 / PI), 0.5) + F64.magic  # n + 1
    r = _subtract(b, wide, (t - F64.magic) - 0.5, PI, format_of(x))
    r = flip_sign(b, r, b.bitcast(t, dtypes.uint64) << 63)
    return _sin_wide(b, b.cast(r, x.dtype))


def tan(b, x):
    """x = n pi/2 + r: tan(r), or -1 / tan(r) where n is odd."""
    n, sine, cosine = _quarters(b, x)
    odd = (n & 1) == 1
    return b.where(x == 0.0, x, b.where(odd, -cosine, sine) / b.where(odd, sine, cosine))


def sin_cos(b, x):
    """(sin(x), cos(x)), with one range reduction for both: less code than the two apart."""
    if not b.as_written:
        return b.sin(x), b.cos(x)
    n, sine, cosine = _quarters(b, x)
    odd = (n & 1) == 1
    s, co = b.where(odd, cosine, sine), b.where(odd, sine, cosine)
    s, co = b.where((n & 2) == 2, -s, s), b.where(((n + 1) & 2) == 2, -co, co)
    return b.where(x == 0.0, x, s), co


def _quarters(b, x):
    """(n, sin(r), cos(r)) for x = n pi/2 + r."""
    f = format_of(x)
    wide = _limited(b, x)
    t = b.fma(wide, float(2 / PI), F64.magic)
    r = b.cast(_subtract(b, wide, t - F64.magic, PI / 2, f), x.dtype)
    z = r * r
    sine = b.fma(r * z, polynomial(b, z, c.SIN_F32 if f is F32 else c.SIN_F64), r)
    cosine = b.fma(z, b.fma(z, polynomial(b, z, c.COS_F32 if f is F32 else c.COS_F64), -0.5), 1.0)
    return b.cast(b.bitcast(t, dtypes.uint64), f.uint), sine, cosine


def sin_near(b, r):
    """sin(r) for float64 |r| up to a little over pi/2, as float32 needs it."""
    z = r * r
    return b.fma(r * z, polynomial(b, z, c.SIN_WIDE_F32), r)


def _limited(b, x):
    """x as float64, or the same angle near zero; NaN for infinities."""
    near = b.near_angle(b.cast(x, dtypes.float64))
    return b.where(b.abs(near) > LIMIT, near * 0.0, near)


def _subtract(b, x, n, period, f):
    """x - n * period, n integral or half-integral."""
    for part in split(period, F64, 2 if f is F32 else 3):
        x = b.fma(n, -part, x)
    return x


def _sin_wide(b, r):
    """sin(r) for |r| up to a little over pi/2."""
    z = r * r
    y = b.fma(r * z, polynomial(b, z, c.SIN_WIDE_F32 if format_of(r) is F32 else c.SIN_WIDE_F64), r)
    return at_most(b, at_least(b, y, -1.0), 1.0)
