"""Divisors of integers, parts of floats, and small functions of signs."""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError
from tandem.graph.ir import Type
from tandem.ops import rules
from tandem.ops.arithmetic import LN2
from tandem.ops.define import Elementwise, LibraryOp, inplace, op, public, register
from tandem.ops.prepare import as_value, broadcast, cast, constant, full_expand, promote, to_float


@register
class Gcd(LibraryOp):
    name = "gcd"
    batching = "alike"
    routine = "gcd"
    takes = "T[*s] T[*s]"

    def infer(self, x: Type, y: Type) -> Type:
        return x

    def rule(self, x: Type, y: Type):
        rules.allowed(self, x.dtype.is_integer, f"x is {x.dtype}; it must hold integers")


def _divisor(name: str, x, y):
    x, y = promote(x, y)
    if not x.dtype.is_integer:
        raise DTypeError(name, f"operands are {x.dtype}; they must be integers")
    x, y = broadcast(name, x, y)
    shape = x.shape or y.shape
    x, y = full_expand(x, shape), full_expand(y, shape)
    return x, y, Gcd()(x, y)


@op
def gcd(x: Tensor, y: Tensor):
    """The greatest common divisor of integers; that of 0 and 0 is 0.

    >>> td.gcd(td.tensor([12, 7]), td.tensor([18, 0]))
    tensor([6, 7])
    """
    return _divisor("gcd", x, y)[2]


@op
def lcm(x: Tensor, y: Tensor):
    """The least common multiple of integers; 0 where one of them is 0.

    >>> td.lcm(td.tensor([4, 7]), td.tensor([6, 0]))
    tensor([12,  0])
    """
    x, y, divisor = _divisor("lcm", x, y)
    return F.abs(F.floor_divide(x, F.maximum(divisor, 1)) * y)


class Parts(NamedTuple):
    """What frexp gives."""

    mantissa: object
    exponent: object


@register
class Mantissa(Elementwise):
    """m of x = m * 2^e with 0.5 <= |m| < 1."""

    name = "mantissa"

    def body(self, b, x):
        return b.frexp(x)[0]

    def grad(self, g, x):
        return F.ldexp(g, F.negative(Exponent()(x)))


@register
class Exponent(Elementwise):
    """e of x = m * 2^e with 0.5 <= |m| < 1, int32."""

    name = "exponent"

    def result_dtype(self, x):
        return dtypes.int32

    def body(self, b, x):
        return b.cast(b.frexp(x)[1], dtypes.int32)


@op(name="frexp", hidden=True)
def _frexp(x: Tensor):
    x = to_float(x)
    return Mantissa()(x), Exponent()(x)


@public(method=True)
def frexp(x: Tensor):
    """(mantissa, exponent) with x = mantissa * 2 ** exponent and 0.5 <= |mantissa| < 1; the exponent is int32.

    >>> td.frexp(td.tensor([8.0])).exponent
    tensor([4], dtype=int32)
    """
    return Parts(*_frexp(x))


@register
class Ldexp(Elementwise):
    """x * 2^n, rounded once."""

    name = "ldexp"

    def body(self, b, x, n):
        x = b.widen(x)
        return b.ldexp(x, b.cast(n, x.dtype))

    def grad(self, g, x, n):
        return Ldexp()(g, n), None


@op
def ldexp(x: Tensor, y: Tensor):
    """x * 2 ** y, exact unless it overflows or underflows; for y that are not whole numbers, the product.

    >>> td.ldexp(td.tensor([1.0, 3.0]), td.tensor([4, -1]))
    tensor([16.0000,  1.5000])
    """
    x, y = as_value(x), as_value(y)
    if y.dtype.is_complex:
        return F.multiply(x, F.exp(y * LN2))
    if y.dtype.is_floating or x.dtype.is_complex:
        return F.multiply(x, F.exp2(F.astype(y, dtypes.part_dtype(to_float(x).dtype)) if y.dtype.is_integer else y))
    return Ldexp()(*broadcast("ldexp", to_float(x), cast(y, dtypes.int64)))


@op
def heaviside(x: Tensor, values: Tensor):
    """0 for negative x, 1 for positive, `values` at 0.

    >>> td.heaviside(td.tensor([-1.0, 0.0, 2.0]), 0.5)
    tensor([0.0000, 0.5000, 1.0000])
    """
    x, values = broadcast("heaviside", *promote(x, values))
    x = F.stop_gradient(x)
    step = cast(F.greater(x, constant(0, x.dtype)), x.dtype)
    return F.where(F.equal(x, 0), values, F.where(F.isnan(x), x, step))


@op
def rsub(x: Tensor, y: Tensor, *, alpha: Factor | None = None):
    """y - alpha * x.

    >>> td.rsub(td.tensor([1.0]), 3.0)
    tensor([2.])
    """
    return F.subtract(y, x, alpha=alpha)


for function in (gcd, lcm, ldexp, heaviside):
    inplace(function)
