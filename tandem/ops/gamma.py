"""The logarithm of the gamma function and its derivatives."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ValueRangeError
from tandem.ops.define import Elementwise, inplace, op, register
from tandem.ops.prepare import to_float

_BERNOULLI = ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510))  # B_2, B_4, ...


@register
class Lgamma(Elementwise):
    name = "lgamma"

    def body(self, b, x):
        return b.lgamma(x)

    def grad(self, g, x):
        return g * F.digamma(x)


@op
def lgamma(x: Tensor):
    """Logarithm of the absolute value of the gamma function.

    >>> td.lgamma(td.tensor([1.0, 5.0]))
    tensor([0.0000, 3.1781])
    """
    return Lgamma()(to_float(x))


@register
class Digamma(Elementwise):
    name = "digamma"

    def body(self, b, x):
        return b.digamma(x)

    def grad(self, g, x):
        return g * Polygamma(1)(x)


@op
def digamma(x: Tensor):
    """The derivative of lgamma.

    >>> td.digamma(td.tensor([1.0, 2.0]))
    tensor([-0.5772,  0.4228])
    """
    return Digamma()(to_float(x))


@register
class Polygamma(Elementwise):
    """The n-th derivative of digamma, n >= 1."""

    name = "polygamma"
    n: int

    def body(self, b, x):
        n, wide = self.n, dtypes.float64
        sign = -1.0 if n % 2 == 0 else 1.0
        x, dtype = b.cast(b.widen(x), wide), b.widen(x).dtype
        # For negative numbers, psi(1 - x) - psi(x) = pi cot(pi x), differentiated n times.
        negative = x < 0.0
        z = b.where(negative, 1.0 - x, x)
        # (-1)^(n+1) n! times the sum of 1 / (z + k)^(n+1): term by term up to where the asymptotic series is good to the last bit.
        far = 10.0 + n
        total = b.const(0.0, wide)
        for _ in range(int(far)):
            near = z < far
            total = b.where(near, total + _power(1.0 / z, n + 1), total)
            z = b.where(near, z + 1.0, z)
        r = 1.0 / z
        square = r * r
        series = b.const(0.0, wide)
        for k in reversed(range(len(_BERNOULLI))):
            above, below = _BERNOULLI[k]
            above *= math.factorial(n + 2 * k + 1)
            below *= math.factorial(n) * math.factorial(2 * k + 2)
            series = series * square + above / below  # of integers: rounded once
        total = total + _power(r, n) * (1.0 / n + r * 0.5 + square * series)
        value = total * (sign * math.factorial(n))
        mirrored = value * -sign - _cotangent_derivative(b, n, x)
        return b.cast(b.where(negative, mirrored, value), dtype)

    def grad(self, g, x):
        return g * Polygamma(self.n + 1)(x)


def _power(x, n: int):
    result = x
    for _ in range(n - 1):
        result = result * x
    return result


def _cotangent_derivative(b, n: int, x):
    """The n-th derivative of pi cot(pi x), as a polynomial in c = cot(pi x): each derivative is -pi (1 + c^2) times that by c."""
    coefficients = [0.0, math.pi]
    for _ in range(n):
        slope = [k * a for k, a in enumerate(coefficients)][1:]
        coefficients = [0.0] * (len(slope) + 2)
        for k, a in enumerate(slope):
            coefficients[k] -= math.pi * a
            coefficients[k + 2] -= math.pi * a
    c = 1.0 / b.tan((x - b.round(x)) * math.pi)
    result = b.const(coefficients[-1], x.dtype)
    for a in reversed(coefficients[:-1]):
        result = result * c + a
    return result


@op
def polygamma(n, x: Tensor):
    """The n-th derivative of digamma.

    >>> td.polygamma(1, td.tensor([1.0]))
    tensor([1.6449])
    """
    if not isinstance(n, int) or not 0 <= n <= 32:  # beyond, code and rounding errors grow without use
        raise ValueRangeError("polygamma", f"n is {n!r}; it must be a whole number from 0 to 32")
    return Polygamma(n)(to_float(x)) if n else F.digamma(x)


inplace(lgamma)
inplace(digamma)
