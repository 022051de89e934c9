"""Whole quotients and remainders.

Dividing integers by zero raises a DivisionError, as in PyTorch and Python; on devices it is told when the device is waited for,
as of an index out of range. Nothing traps: the most negative number divided by -1 is itself, as it is when integers wrap
everywhere else.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.errors import DivisionError, DTypeError
from tandem.graph.ir import Value
from tandem.ops.define import Elementwise, alias, inplace, op, register
from tandem.ops.prepare import broadcast, promote, weak_kind


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
    if a.dtype.is_integer:
        b = _not_zero(name, y, b)
    return primitive(*broadcast(name, a, b))


def _not_zero(name: str, y, b: Value) -> Value:
    """b, the divisor y in the type of the result, checked. Numbers of calls were looked at when arguments were bound."""
    if isinstance(b.op, F.Constant):
        if b.op.value == 0:
            raise DivisionError(
                name,
                "ZeroDivisionError: an integer is divided by zero",
                fix="divide floats, or replace zeros first: td.where(y == 0, 1, y)",
            )
        return b
    if weak_kind(y) is not None or isinstance(b.op, F.Size):
        return b
    return F.CheckDivisor()(b)


@op
def floor_divide(x: Tensor, y: Divisor):
    """Quotient rounded down. Integers divided by 0 raise a DivisionError.

    >>> td.floor_divide(td.tensor([7, -7]), 2)
    tensor([ 3, -4])
    """
    return _apply("floor_divide", FloorDivide(), x, y)


@op
def remainder(x: Tensor, y: Divisor):
    """What floor_divide leaves, with the sign of y, as Python's %. Integers: the remainder by 0 raises a DivisionError.

    >>> td.remainder(td.tensor([7, -7]), 3)
    tensor([1, 2])
    """
    return _apply("remainder", Remainder(), x, y)


@op
def fmod(x: Tensor, y: Divisor):
    """What division rounded toward zero leaves, with the sign of x, as in C.

    >>> td.fmod(td.tensor([7, -7]), 3)
    tensor([ 1, -1])
    """
    return _apply("fmod", Fmod(), x, y)


@op
def trunc_divide(x: Tensor, y: Divisor):
    """Quotient rounded toward zero. Integers divided by 0 raise a DivisionError.

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
