"""Bits of integers, and logic on booleans."""

from __future__ import annotations

from tandem.errors import DTypeError
from tandem.ops.define import Elementwise, alias, inplace, op, register
from tandem.ops.prepare import as_value, broadcast, promote


@register
class BitAnd(Elementwise):
    name = "bit_and"
    commutative = True

    def body(self, b, x, y):
        return x & y


@register
class BitOr(Elementwise):
    name = "bit_or"
    commutative = True

    def body(self, b, x, y):
        return x | y


@register
class BitXor(Elementwise):
    name = "bit_xor"
    commutative = True

    def body(self, b, x, y):
        return x ^ y


@register
class BitNot(Elementwise):
    name = "bit_not"

    def body(self, b, x):
        return ~x


@register
class ShiftLeft(Elementwise):
    name = "shift_left"

    def body(self, b, x, y):
        return x << y


@register
class ShiftRight(Elementwise):
    name = "shift_right"

    def body(self, b, x, y):
        return x >> y


def _bits(name: str, primitive, x, y, booleans: bool = True):
    x, y = promote(x, y)
    if not x.dtype.is_integer and not (booleans and x.dtype.kind == "bool"):
        raise DTypeError(
            name, f"{x.dtype} has no bits to combine; integers{' or booleans' if booleans else ''} are needed"
        )
    return primitive(*broadcast(name, x, y))


@op
def bitwise_and(x: Tensor, y: Tensor):
    """x & y, bit by bit.

    >>> td.bitwise_and(td.tensor([6, 5]), 4)
    tensor([4, 4])
    """
    return _bits("bitwise_and", BitAnd(), x, y)


@op
def bitwise_or(x: Tensor, y: Tensor):
    """x | y, bit by bit.

    >>> td.bitwise_or(td.tensor([6, 1]), 4)
    tensor([6, 5])
    """
    return _bits("bitwise_or", BitOr(), x, y)


@op
def bitwise_xor(x: Tensor, y: Tensor):
    """x ^ y, bit by bit.

    >>> td.bitwise_xor(td.tensor([6, 1]), 4)
    tensor([2, 5])
    """
    return _bits("bitwise_xor", BitXor(), x, y)


@op
def bitwise_invert(x: Tensor):
    """~x: every bit flipped; for booleans, not x.

    >>> td.bitwise_invert(td.tensor([0, 5]))
    tensor([-1, -6])
    """
    x = as_value(x)
    if not x.dtype.is_integer and x.dtype.kind != "bool":
        raise DTypeError("bitwise_invert", f"{x.dtype} has no bits to flip; integers or booleans are needed")
    return BitNot()(x)


@op
def bitwise_left_shift(x: Tensor, y: Tensor):
    """x << y. Shifting by all bits or more leaves 0.

    >>> td.bitwise_left_shift(td.tensor([1, 3]), 2)
    tensor([ 4, 12])
    """
    return _bits("bitwise_left_shift", ShiftLeft(), x, y, booleans=False)


@op
def bitwise_right_shift(x: Tensor, y: Tensor):
    """x >> y, keeping the sign.

    >>> td.bitwise_right_shift(td.tensor([8, -8]), 2)
    tensor([ 2, -2])
    """
    return _bits("bitwise_right_shift", ShiftRight(), x, y, booleans=False)


alias("bitwise_not", bitwise_invert)
alias("bitwise_not_", inplace(bitwise_invert))
for function in (bitwise_and, bitwise_or, bitwise_xor, bitwise_left_shift, bitwise_right_shift):
    inplace(function)
