"""Powers."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.errors import DTypeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.ops.define import Elementwise, alias, inplace, op, public, register
from tandem.ops.prepare import as_value, binary, cast, is_number, promote, to_float

# Exponents with a cheaper form than the general power. Eagerly a number among these makes a plan of its own; all others share one.
_CHEAP = frozenset((-2, -1, -0.5, 0.5, 1, 2, 3, 4))
_MOST_FACTORS = 64  # integers are multiplied out up to here


@register
class Pow(Elementwise):
    """x to the power of y, both floats or both integers. Integers wrap; to negative powers only 1 and -1 are not 0."""

    name = "pow"
    takes_complex = True

    def body(self, b, x, y):
        if x.dtype.is_inexact:
            return b.pow(x, y)
        one, zero = b.const(1, x.dtype), b.const(0, x.dtype)
        result, base = one, x
        bits = x.dtype.itemsize * 8 - (x.dtype.kind == "int")
        for bit in range(bits):
            result = b.where((y >> bit) & 1 != 0, result * base, result)
            base = base * base
        if x.dtype.kind == "uint":
            return result
        odd = (y & 1) != 0
        inverse = b.where(x == 1, one, b.where(x == -1, b.where(odd, x, one), zero))
        return b.where(y < 0, inverse, result)

    def grad(self, g, x, y, *, out):
        # y * x^(y-1) is 0 times infinity for y = 0 at x = 0 (and where 1/x overflows): there the exponent becomes 0 first.
        tiny = F.logical_and(F.equal(y, 0), F.less(F.abs(x), 1e-37))
        by_x = g * y * Pow()(x, F.where(tiny, 0, y - 1))
        # 0^y does not change with y >= 0: the logarithm of 0 must not come in, nor its derivative. With y < 0 it is infinite.
        flat = F.equal(x, 0) if y.dtype.is_complex else F.logical_and(F.equal(x, 0), F.greater_equal(y, 0))
        by_y = g * out * F.log(F.where(flat, 1, x))
        return by_x, by_y


def _cheap_power(x: Value, exponent) -> Value | None:
    """x ** exponent for a known exponent without the general power, or None."""
    if exponent == 1:
        return F.Copy()(x)
    if x.dtype.is_integer:
        return _multiplied_out(x, exponent) if 2 <= exponent <= _MOST_FACTORS else None
    if exponent in (2, 3, 4):
        return _multiplied_out(x, int(exponent))
    if exponent == 0.5:
        return F.sqrt(x)
    if exponent == -0.5:
        return F.rsqrt(x)
    if exponent == -1:
        return F.reciprocal(x)
    return F.reciprocal(F.Mul()(x, x)) if exponent == -2 else None


def _multiplied_out(x: Value, count: int) -> Value:
    """x multiplied by itself, by repeated squaring."""
    if count == 1:
        return x
    half = _multiplied_out(x, count // 2)
    square = F.Mul()(half, half)
    return F.Mul()(square, x) if count % 2 else square


def _power(x, y):
    if is_number(y) and not isinstance(y, bool) and isinstance(x, Value):
        if isinstance(y, complex):
            return binary("power", Pow(), x, y)
        x = promote(x, y)[0]
        if x.dtype.is_integer and y < 0:
            raise ValueRangeError(
                "power",
                f"integers ({x.dtype}) to the negative power {y} are not integers",
                fix="use a float: x ** -1.0",
            )
        cheap = _cheap_power(x, y)
        if cheap is not None:
            return cheap
    a, b = promote(x, y)
    if a.dtype.kind == "bool":
        raise DTypeError("power", "booleans have no powers", fix="convert them: x.to(td.int64)")
    return binary("power", Pow(), a, b)


@op(name="power", hidden=True)
def _any_power(x: Tensor, y: Factor):
    return _power(x, y)


@op(name="power", hidden=True)
def _power_by(x: Tensor, exponent):
    return _power(as_value(x), exponent)


def _is_special(x, y) -> bool:
    """Whether x ** y is worth a plan of its own (or the error that only a known exponent allows)."""
    kind = type(y)
    if (kind is not int and kind is not float) or not isinstance(x, _runtime.Tensor):
        return False
    return y in _CHEAP or (kind is int and y <= _MOST_FACTORS and x.dtype.is_integer)


@public(method=True)
def power(x, y):
    """x to the power of y. Integers stay integers and wrap; to a negative integer power they are an error if the exponent is a
    number, and 0 (but for 1 and -1) if it is a tensor.

    >>> td.power(td.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.])
    """
    return _power_by(x, y) if _is_special(x, y) else _any_power(x, y)


_any_power_ = inplace(_any_power)
_power_by_ = inplace(_power_by)


@public(method=True)
def power_(x, y):
    """In-place form of `power`: writes the result into the first argument and returns it."""
    return _power_by_(x, y) if _is_special(x, y) else _any_power_(x, y)


@op
def float_power(x: Tensor, y: Tensor):
    """x to the power of y, computed in float64, or in complex128 if either is complex.

    >>> td.float_power(td.tensor([2]), -1)
    tensor([0.5000], dtype=float64)
    """
    x, y = to_float(x), to_float(y)
    wide = dtypes.complex128 if x.dtype.is_complex or y.dtype.is_complex else dtypes.float64
    return F.power(cast(x, wide), cast(y, wide))


alias("pow", power)
alias("pow_", power_)
