"""Rounding to whole numbers. Gradients are zero, but for what `frac` keeps."""

from __future__ import annotations

import tandem.ops as F
from tandem.errors import ValueRangeError
from tandem.ops.define import Elementwise, alias, inplace, op, register
from tandem.ops.prepare import as_value


class _Rounding(Elementwise):
    def grad(self, g, x):
        return F.zeros_like(x)


@register
class Floor(_Rounding):
    name = "floor"

    def body(self, b, x):
        return b.floor(x)


@op
def floor(x: Tensor):
    """Largest whole number not above x.

    >>> td.floor(td.tensor([1.7, -1.2]))
    tensor([ 1., -2.])
    """
    return Floor()(as_value(x))


@register
class Ceil(_Rounding):
    name = "ceil"

    def body(self, b, x):
        return b.ceil(x)


@op
def ceil(x: Tensor):
    """Smallest whole number not below x.

    >>> td.ceil(td.tensor([1.2, -1.7]))
    tensor([ 2., -1.])
    """
    return Ceil()(as_value(x))


@register
class Trunc(_Rounding):
    name = "trunc"

    def body(self, b, x):
        return b.trunc(x)


@op
def trunc(x: Tensor):
    """x without its fraction: rounded toward zero.

    >>> td.trunc(td.tensor([1.7, -1.7]))
    tensor([ 1., -1.])
    """
    return Trunc()(as_value(x))


@register
class Round(_Rounding):
    name = "round"
    takes_complex = True

    def body(self, b, x):
        return b.round(x)


@op(name="round")
def round_(x: Tensor, decimals=0):
    """Nearest whole number, halves to the even one; with decimals, the nearest multiple of 10 ** -decimals.

    >>> td.round(td.tensor([0.5, 1.5, 2.7]))
    tensor([0., 2., 3.])
    >>> td.round(td.tensor([3.14159]), 2)
    tensor([3.1400])
    """
    x = as_value(x)
    if not -300 <= decimals <= 300:
        raise ValueRangeError(
            "round", f"decimals is {decimals}; no float has that many", fix="use a number from -300 to 300"
        )
    if decimals == 0 or (decimals > 0 and not x.dtype.is_inexact):
        return Round()(x)
    if not x.dtype.is_inexact:  # to tens, hundreds, ...
        unit = 10**-decimals
        low = F.floor_divide(x, unit)
        rest = (x - low * unit) * 2
        odd = F.equal(F.remainder(low, 2), 1)
        up = F.logical_or(F.greater(rest, unit), F.logical_and(F.equal(rest, unit), odd))
        return (low + F.astype(up, x.dtype)) * unit
    if decimals > 0:
        return Round()(x * 10.0**decimals) / 10.0**decimals
    return Round()(x / 10.0**-decimals) * 10.0**-decimals


@op
def frac(x: Tensor):
    """The fraction of x, with its sign: x - trunc(x).

    >>> td.frac(td.tensor([1.5, -1.25]))
    tensor([ 0.5000, -0.2500])
    """
    x = as_value(x)
    return F.subtract(x, Trunc()(x))


alias("fix", trunc)
for function in (floor, ceil, trunc, round_, frac):
    inplace(function)
