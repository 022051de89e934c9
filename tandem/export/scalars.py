"""Scalar expressions of operators for files that other compilers and runtimes read.

They have functions of their own, may rewrite sums, and show no bits. What adds and takes away large numbers to round, or puts
numbers together from bits (tandem/codegen/mathlib), is written by other formulas here.
"""

from __future__ import annotations

import math

from tandem import dtypes
from tandem.codegen import pairs
from tandem.codegen.expr import Expr, ScalarBuilder

LN2 = math.log(2)
_LARGE = 20.0  # from here on e^-x is nothing beside e^x


def complex_too(cls):
    """Has each of a builder's functions compute with parts where an argument is complex."""

    def both(name: str, function):
        def call(self, *args):
            if any(isinstance(a, Expr) and a.dtype.is_complex for a in args):
                return pairs.function(name)(self, *args)
            return function(self, *args)

        return call

    for name, function in list(vars(cls).items()):
        if callable(function) and name != "native" and not name.startswith("_"):
            setattr(cls, name, both(name, function))
    return cls


@complex_too
class FileScalars(ScalarBuilder):
    """A builder whose functions are those that a kind of file has, or formulas of them. `NATIVE`: our name -> the file's."""

    as_written = False
    NATIVE: dict[str, str] = {}

    def native(self, name: str, *args):
        """A function of the file."""
        args = [self.widen(a) for a in args]
        return self.make("native", tuple(args), args[0].dtype, name)

    def sinh(self, x):
        a = self.abs(self.widen(x))
        e, half = self.expm1(a), self.exp(a * 0.5)
        near = (e + e / (e + 1.0)) * 0.5
        return self.copysign(self.where(a < _LARGE, near, (half * 0.5) * half), x)  # e^a itself may overflow

    def cosh(self, x):
        a = self.abs(self.widen(x))
        e, half = self.exp(a), self.exp(a * 0.5)
        return self.where(a < _LARGE, (e + 1.0 / e) * 0.5, (half * 0.5) * half)

    def softplus(self, x):
        x = self.widen(x)
        return self.max(x, 0.0) + self.log1p(self.exp(-self.abs(x)))

    def logaddexp(self, x, y):
        x, y = self.widen(x), self.widen(y)
        apart = self.max(x, y) + self.log1p(self.exp(-self.abs(x - y)))
        return self.where(x == y, x + LN2, apart)  # also where both are the same infinity

    def exp2(self, x):
        x = self.widen(x)
        return self.pow(self.const(2.0, x.dtype), x)

    def log2(self, x):
        return self.log(x) * (1 / LN2)

    def log10(self, x):
        return self.log(x) * (1 / math.log(10))

    def tan(self, x):
        return self.sin(x) / self.cos(x)

    def rsqrt(self, x):
        return 1.0 / self.sqrt(x)

    def cbrt(self, x):
        a = self.abs(self.widen(x))
        root = self.pow(a, self.const(1 / 3, a.dtype))
        if (
            a.dtype is dtypes.float64
        ):  # a third is not a number of float64; a step of Newton's method mends what that costs
            step = root - (root - a / (root * root)) * (1 / 3)
            root = self.where((a == 0.0) | (a == math.inf), root, step)
        return self.copysign(root, x)


def native_functions(cls):
    """Gives a builder a method for each of its NATIVE functions."""
    for name, theirs in cls.NATIVE.items():
        setattr(cls, name, lambda self, *args, theirs=theirs: self.native(theirs, *args))
    return complex_too(cls)
