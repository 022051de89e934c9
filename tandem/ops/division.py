"""Whole quotients and remainders.

Dividing integers by zero gives 0, quotient and remainder alike, and nothing traps: the most negative number divided by -1 is
itself, as it is when integers wrap everywhere else.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.errors import DTypeError
from tandem.ops.define import Elementwise, alias, inplace, op, register
from tandem.ops.prepare import broadcast, promote


@register
class FloorDivide(Elementwise):
    name = "floor_divide"

    def body(self, b, x, y):
        return b.floordiv_float(x, y) if x.dtype.is_floating else x // y

    def grad(self, g, x, y):
        return F.zeros_like(x), F.zeros_like(y)


@register
class Remainder(Elementwise):
    name = "remainder"

    def body(self, b, x, y):
        return x % y

    def grad(self, g, x, y):
        return g, -g * F.floor_divide(x, y)


@register
class Fmod(Elementwise):
    name = "fmod"

    def body(self, b, x, y):
        if x.dtype.is_floating:
            return b.fmod(x, y)
        rest = x % y
        return rest if x.dtype.kind == "uint" else b.where((rest != 0) & ((x < 0) != (y < 0)), rest - y, rest)

    def grad(self, g, x, y):
        return g, -g * F.trunc(x / y)


def _apply(name: str, primitive, x, y):
    a, b = promote(x, y)
    if a.dtype.kind == "bool":
        raise DTypeError(name, "booleans cannot be divided", fix="convert them: x.to(td.int64)")
    return primitive(*broadcast(name, a, b))


@op
def floor_divide(x: Tensor, y: Tensor):
    """Quotient rounded down. Integers divided by 0 give 0.

    >>> td.floor_divide(td.tensor([7, -7]), 2)
    tensor([ 3, -4])
    """
    return _apply("floor_divide", FloorDivide(), x, y)


@op
def remainder(x: Tensor, y: Tensor):
    """What floor_divide leaves, with the sign of y, as Python's %. Integers: the remainder by 0 is 0.

    >>> td.remainder(td.tensor([7, -7]), 3)
    tensor([1, 2])
    """
    return _apply("remainder", Remainder(), x, y)


@op
def fmod(x: Tensor, y: Tensor):
    """What division rounded toward zero leaves, with the sign of x, as in C.

    >>> td.fmod(td.tensor([7, -7]), 3)
    tensor([ 1, -1])
    """
    return _apply("fmod", Fmod(), x, y)


@op
def trunc_divide(x: Tensor, y: Tensor):
    """Quotient rounded toward zero. Integers divided by 0 give 0.

    >>> td.trunc_divide(td.tensor([7, -7]), 2)
    tensor([ 3, -3])
    """
    a, b = promote(x, y)
    if a.dtype.is_floating:
        return F.trunc(a / b)
    return F.floor_divide(F.subtract(a, F.fmod(a, b)), b)


alias("mod", remainder)
for function in (floor_divide, remainder, fmod):
    inplace(function)
