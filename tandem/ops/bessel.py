"""Bessel's functions of order 0 and 1, Airy's function and spherical Bessel functions: the names of td.special.

Derivatives of Bessel's functions are Bessel's functions of the neighbouring orders, so that any order of derivative is there.
"""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.graph.ir import Type
from tandem.ops import rules
from tandem.ops.define import Elementwise, LibraryOp, inplace, op, register
from tandem.ops.prepare import to_float

_FUNCTIONS = {"j": 0, "y": 1, "i": 2, "i_scaled": 3, "k": 4, "k_scaled": 5, "airy": 6, "spherical_j": 7}


@register
class Bessel(LibraryOp):
    """J, Y, I, K (I also times exp(-|x|), K times exp(x)) and spherical j of whole order n; of airy, n is 0 for Ai, 1 for Ai'."""

    name = "bessel"
    batching = "leading"
    routine = "special"
    function: str
    n: int
    takes = "F[*s]"

    def infer(self, x: Type) -> Type:
        return x

    def rule(self, x: Type):
        rules.one_of(self, "function", self.function, _FUNCTIONS)
        rules.allowed(self, 0 <= self.n < 2**31, f"n is {self.n}; it must be from 0 to 2**31")

    def attributes(self, x):
        return (_FUNCTIONS[self.function], self.n), ()

    def grad(self, g, x, *, out):
        return self.slope(g, x, out)

    def slope(self, g, x, out):
        n, kind = self.n, self.function
        if kind == "airy":  # Ai'' = x Ai
            return g * (Bessel("airy", 1)(x) if n == 0 else x * Bessel("airy", 0)(x))
        above = _bessel(kind, n + 1)(x)
        below = _bessel(kind, n - 1)(x) if n else None
        if kind in ("j", "y"):
            return g * (-above if n == 0 else (below - above) * 0.5)
        if kind == "spherical_j":
            return g * (-above if n == 0 else (below * n - above * (n + 1)) / (2 * n + 1))
        slope = above if n == 0 else (below + above) * 0.5
        if kind == "i":
            return g * slope
        if kind == "i_scaled":
            return g * (slope - F.sign(x) * out)
        return g * (-slope if kind == "k" else out - slope)


@register
class ModifiedBessel(Elementwise):
    """I of order 0 or 1, `scaled` times exp(-|x|)."""

    name = "modified_bessel"
    n: int
    scaled: bool

    def body(self, b, x):
        return getattr(b, f"bessel_i{self.n}{'e' if self.scaled else ''}")(x)

    def grad(self, g, x, *, out):
        return Bessel("i_scaled" if self.scaled else "i", self.n).slope(g, x, out)


@register
class SecondBessel(Elementwise):
    """Y of order 0 or 1, for floats of up to 32 bits."""

    name = "second_bessel"
    n: int

    def body(self, b, x):
        return getattr(b, f"bessel_y{self.n}")(x)

    def grad(self, g, x, *, out):
        return Bessel("y", self.n).slope(g, x, out)


def _bessel(function: str, n: int):
    """The primitive that is quickest for a function of this order."""
    if function in ("i", "i_scaled") and n < 2:
        return ModifiedBessel(n, function == "i_scaled")
    return Bessel(function, n)


@op(internal=True)
def bessel_j0(x: Tensor):
    """Bessel's function of the first kind of order 0.

    x: (*s) -> (*s)

    >>> td.special.bessel_j0(td.tensor([0.0, 1.0]))
    tensor([1.0000, 0.7652])
    """
    return Bessel("j", 0)(to_float(x))


@op(internal=True)
def bessel_j1(x: Tensor):
    """Bessel's function of the first kind of order 1.

    >>> td.special.bessel_j1(td.tensor([0.0, 1.0]))
    tensor([0.0000, 0.4401])
    """
    return Bessel("j", 1)(to_float(x))


def _second_kind(n: int, x):
    return Bessel("y", n)(x) if x.dtype is dtypes.float64 else SecondBessel(n)(x)


@op(internal=True)
def bessel_y0(x: Tensor):
    """Bessel's function of the second kind of order 0; NaN for negative x.

    >>> td.special.bessel_y0(td.tensor([1.0, 2.0]))
    tensor([0.0883, 0.5104])
    """
    return _second_kind(0, to_float(x))


@op(internal=True)
def bessel_y1(x: Tensor):
    """Bessel's function of the second kind of order 1; NaN for negative x.

    >>> td.special.bessel_y1(td.tensor([1.0, 2.0]))
    tensor([-0.7812, -0.1070])
    """
    return _second_kind(1, to_float(x))


@op
def i0(x: Tensor):
    """The modified Bessel function of the first kind of order 0.

    >>> td.i0(td.tensor([0.0, 1.0]))
    tensor([1.0000, 1.2661])
    """
    return _bessel("i", 0)(to_float(x))


@op(internal=True)
def i0e(x: Tensor):
    """i0 times exp(-|x|), which does not overflow.

    >>> td.special.i0e(td.tensor([0.0, 1.0]))
    tensor([1.0000, 0.4658])
    """
    return _bessel("i_scaled", 0)(to_float(x))


@op(internal=True)
def i1(x: Tensor):
    """The modified Bessel function of the first kind of order 1.

    >>> td.special.i1(td.tensor([0.0, 1.0]))
    tensor([0.0000, 0.5652])
    """
    return _bessel("i", 1)(to_float(x))


@op(internal=True)
def i1e(x: Tensor):
    """i1 times exp(-|x|), which does not overflow.

    >>> td.special.i1e(td.tensor([0.0, 1.0]))
    tensor([0.0000, 0.2079])
    """
    return _bessel("i_scaled", 1)(to_float(x))


@op(internal=True)
def modified_bessel_k0(x: Tensor):
    """The modified Bessel function of the second kind of order 0; NaN for negative x.

    >>> td.special.modified_bessel_k0(td.tensor([1.0, 2.0]))
    tensor([0.4210, 0.1139])
    """
    return Bessel("k", 0)(to_float(x))


@op(internal=True)
def modified_bessel_k1(x: Tensor):
    """The modified Bessel function of the second kind of order 1; NaN for negative x.

    >>> td.special.modified_bessel_k1(td.tensor([1.0, 2.0]))
    tensor([0.6019, 0.1399])
    """
    return Bessel("k", 1)(to_float(x))


@op(internal=True)
def scaled_modified_bessel_k0(x: Tensor):
    """modified_bessel_k0 times exp(x), which does not underflow.

    >>> td.special.scaled_modified_bessel_k0(td.tensor([1.0, 2.0]))
    tensor([1.1445, 0.8416])
    """
    return Bessel("k_scaled", 0)(to_float(x))


@op(internal=True)
def scaled_modified_bessel_k1(x: Tensor):
    """modified_bessel_k1 times exp(x), which does not underflow.

    >>> td.special.scaled_modified_bessel_k1(td.tensor([1.0, 2.0]))
    tensor([1.6362, 1.0335])
    """
    return Bessel("k_scaled", 1)(to_float(x))


@op(internal=True)
def airy_ai(x: Tensor):
    """Airy's function Ai.

    >>> td.special.airy_ai(td.tensor([0.0, 1.0]))
    tensor([0.3550, 0.1353])
    """
    return Bessel("airy", 0)(to_float(x))


@register
class SphericalJ0(Elementwise):
    """sin(x) / x, 1 at 0."""

    name = "spherical_j0"

    def body(self, b, x):
        return b.where(x == 0.0, 1.0, b.sin(x) / x)

    def grad(self, g, x):
        return g * -Bessel("spherical_j", 1)(x)


@op(internal=True)
def spherical_bessel_j0(x: Tensor):
    """The spherical Bessel function of order 0: sin(x) / x, 1 at 0.

    >>> td.special.spherical_bessel_j0(td.tensor([0.0, 1.0]))
    tensor([1.0000, 0.8415])
    """
    return SphericalJ0()(to_float(x))


@op
def sinc(x: Tensor):
    """sin(pi x) / (pi x), 1 at 0.

    >>> td.sinc(td.tensor([0.0, 0.5]))
    tensor([1.0000, 0.6366])
    """
    x = to_float(x) * math.pi
    if x.dtype.is_complex:
        zero = F.equal(x, 0)
        return F.where(zero, 1, F.sin(x) / F.where(zero, 1, x))
    return SphericalJ0()(x)


inplace(i0)
inplace(sinc)
