"""Known sizes as arguments: kernels that differ in nothing else are one source, which is compiled once.

Note [Sizes as arguments]
A network calls the same few kernels on dozens of shapes, and compiling costs far more than running. So sizes, strides and numbers
of rows that a program knows are passed like those it does not know. What the code is made from is kept as facts: which powers
of two divide a size (wide words need that), and that all of it fits in 32 bits. Two kernels with the same statements and the same
facts have the same source. Quotients by such sizes are multiplications by inverses that come along (`over` in ops.py). What loops
are unrolled by stays a number in the source: lengths of rows, of loops that every thread runs alone, and small strides.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

from tandem import dtypes
from tandem.codegen.expr import Expr
from tandem.graph.symbolic import Dim

LIMIT = 1 << 31  # sizes that are arguments, and what is counted with them, are less
SMALL_STRIDE = 16  # less than this is written as a number
COUNT = 32  # whole constants below are written as numbers
WIDEST = 16  # bytes of a word: higher powers of two are of no use


class Size(NamedTuple):
    """A known size, among a kernel's integers. Equal sizes of one role are one argument."""

    role: object
    value: int


def inverse(divisor: int) -> int:
    """What `over` multiplies by (low 32 bits) and shifts by (above), to divide numbers below 2^31."""
    shift = (divisor - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - divisor) // divisor + 1) | shift << 32


class Sizes:
    """What a nest passes by value, and what is known of it. `e`: its emitter."""

    def __init__(self, emitter):
        self.e = emitter
        emitter.constant = self.constant
        self.known: dict[int, int] = {}  # number of an argument -> the power of two that divides it, WIDEST at most
        self.inverses: dict[int, int] = {}  # number of an argument -> number of its inverse

    def number(self, role, d: Dim) -> int:
        """Which argument a size is."""
        ints = self.e.ints
        return ints.setdefault(Size(role, d) if type(d) is int else d, len(ints))

    def size(self, role, d: Dim, least: int = 0) -> Expr:
        """A size as an argument, where it is known and from `least` on."""
        if type(d) is not int or not least <= d < LIMIT:
            return self.e.dim(d)
        number = self.number(role, d)
        self.known[number] = min(d & -d, WIDEST) or WIDEST
        return self.e.b.make("int", (), dtypes.int64, number)

    def digits(self, digits: list, fits: bool) -> tuple:
        """(variable, size) of the digits of a counter, as a Loop has them. `fits`: it stays below LIMIT."""
        made = []
        for place, (v, n) in enumerate(digits):
            if type(n) is int and n > 0 and fits:
                size = self.size(("digit", place), n)
                if place and size.op == "int":  # nothing is divided by the first
                    self.inverses[size.attr] = self.number(("inverse", place), inverse(n))
            else:
                size = self.e.dim(n)
            made.append((v, size))
        return tuple(made)

    def constant(self, value: Expr) -> Expr:
        """A constant as an argument, such as the divisor of a mean; not those that say something to the compiler."""
        if value.op != "const" or value.dtype is not dtypes.float32:
            return value
        (number,) = struct.unpack("<f", struct.pack("<I", value.attr))
        whole = abs(number) < COUNT and number == int(number)
        if whole or not math.isfinite(number) or abs(math.frexp(number)[0]) == 0.5:  # a power of two
            return value
        b = self.e.b
        bits = b.make("int", (), dtypes.int64, self.number("constant", value.attr))
        return b.bitcast(b.cast(bits, dtypes.uint32), dtypes.float32)

    def settle(self, forms: list, order: list[int]) -> list[Expr]:
        """Index forms as arithmetic."""
        return [self.e.settle(f, order, lambda role, d: self.size(role, d, SMALL_STRIDE)) for f in forms]

    def values(self) -> tuple:
        """The kernel's integers, in order."""
        return tuple([d.value if type(d) is Size else d for d in self.e.ints])
