"""Complex numbers: their parts, and what only they have."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ShapeError
from tandem.graph.ir import Type, Value
from tandem.ops import rules
from tandem.ops.define import Elementwise, Movement, alias, inplace, method, op, public, register
from tandem.ops.prepare import as_value, broadcast, constant, promote, show_shape, to_float


@register
class Part(Movement):
    """The real (0) or imaginary (1) parts. A view."""

    name = "part"
    batching = "leading"
    index: int
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        return Type(dtypes.REAL_PART[x.dtype], x.shape)

    def rule(self, x: Type):
        rules.allowed(self, x.dtype.is_complex, f"x is {x.dtype}; only complex numbers have parts")
        rules.one_of(self, "index", self.index, (0, 1))

    def grad(self, g, x):
        zero = constant(0, g.dtype)
        return Complex()(zero, g) if self.index else Complex()(g, zero)


@register
class AsReal(Movement):
    """Complex numbers as pairs along a new last axis. A view."""

    name = "as_real"
    batching = "leading"
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        return Type(dtypes.REAL_PART[x.dtype], (*x.shape, 2))

    def rule(self, x: Type):
        rules.allowed(self, x.dtype.is_complex, f"x is {x.dtype}; it must be complex")

    def grad(self, g, x):
        return AsComplex()(g)


@register
class AsComplex(Movement):
    """Pairs along the last axis as complex numbers. A view where strides allow it."""

    name = "as_complex"
    batching = "leading"
    takes = "F[*s,2]"

    def infer(self, x: Type) -> Type:
        return Type(dtypes.COMPLEX_OF[x.dtype], x.shape[:-1])

    def rule(self, x: Type):
        rules.allowed(self, x.dtype in dtypes.COMPLEX_OF, f"x is {x.dtype}; there are no complex numbers of such parts")

    def grad(self, g, x):
        return AsReal()(g)


@register
class Complex(Elementwise):
    """re + i im"""

    name = "complex"
    holomorphic = False

    def result_dtype(self, re, im):
        return dtypes.COMPLEX_OF[re]

    def body(self, b, re, im):
        return b.complex(re, im)

    def grad(self, g, re, im):
        return real_of(g), imag_of(g)


@register
class Conj(Elementwise):
    name = "conj"
    takes_complex = True
    holomorphic = False

    def body(self, b, x):
        return b.complex(b.real(x), -b.imag(x))

    def grad(self, g, x):
        return conj_of(g)


@register
class Angle(Elementwise):
    """The angle of a complex number; of a real one 0 or pi."""

    name = "angle"
    takes_complex = True
    holomorphic = False

    def result_dtype(self, x):
        return dtypes.part_dtype(x)

    def body(self, b, x):
        if x.dtype.is_complex:
            return b.atan2(b.imag(x), b.real(x))
        x = b.widen(x)
        return b.where(b.isnan(x), x, b.where(x < 0, b.const(math.pi, x.dtype), b.const(0.0, x.dtype)))

    def grad(self, g, x):
        if not x.dtype.is_complex:
            return F.zeros_like(x)
        # i z / |z|^2; nothing at 0
        size = F.abs(x)
        zero = F.equal(size, 0)
        turned = Complex()(-imag_of(x), real_of(x))
        return F.where(zero, 0, turned * (g / F.where(zero, 1, size * size)))


def real_of(x: Value) -> Value:
    """The real part, known at once where x was made from its parts."""
    if not x.dtype.is_complex:
        return x
    return x.node.inputs[0] if _has_parts(x) else Part(0)(x)


def imag_of(x: Value) -> Value:
    if not x.dtype.is_complex:
        return F.zeros_like(x)
    return x.node.inputs[1] if _has_parts(x) else Part(1)(x)


def _has_parts(x: Value) -> bool:
    return x.op.name == "complex" and all(v.ndim == x.ndim for v in x.node.inputs)


def conj_of(x: Value) -> Value:
    if not x.dtype.is_complex:
        return x
    return x.node.inputs[0] if x.op.name == "conj" else Conj()(x)


def bilinear(product, x: Value, y: Value) -> Value:
    """A product that is linear in both operands, by four of their parts; three would do, at the price of digits."""
    (a, b), (c, d) = ((Part(0)(v), Part(1)(v)) for v in (x, y))
    return Complex()(F.Sub()(product(a, c), product(b, d)), F.Add()(product(a, d), product(b, c)))


# -- functions


@op(method=False)
def real(x: Tensor):
    """The real part; a view. Real numbers are their own.

    >>> td.real(td.tensor([1 + 2j, 3 - 4j]))
    tensor([1., 3.])
    """
    x = as_value(x)
    return Part(0)(x) if x.dtype.is_complex else x


@op(method=False)
def imag(x: Tensor):
    """The imaginary part; a view. Of real numbers it is 0.

    >>> td.imag(td.tensor([1 + 2j, 3 - 4j]))
    tensor([ 2., -4.])
    """
    x = as_value(x)
    return Part(1)(x) if x.dtype.is_complex else F.zeros_like(x)


@op
def conj(x: Tensor):
    """The complex conjugate. Real numbers stay as they are.

    >>> td.conj(td.tensor([1 + 2j, 3 - 4j]))
    tensor([1.-2.j, 3.+4.j])
    """
    return conj_of(as_value(x))


@op
def angle(x: Tensor):
    """The angle in radians, from -pi to pi. Of real numbers it is 0 or, if they are negative, pi.

    >>> td.angle(td.tensor([1 + 1j, -1j]))
    tensor([ 0.7854, -1.5708])
    """
    return Angle()(to_float(x))


def _require_parts(op: str, x: Value):
    if x.dtype not in dtypes.COMPLEX_OF:
        raise DTypeError(
            op,
            f"the parts are {x.dtype}; complex numbers are made of float32 or float64",
            fix="convert them: x.to(td.float32)",
        )


@op(name="complex", method=False)
def complex_(real: Tensor, imag: Tensor):
    """Complex numbers with the given real and imaginary parts.

    real, imag: broadcastable, float32 or float64 -> (*broadcast), complex64 or complex128

    >>> td.complex(td.tensor([1.0, 2.0]), td.tensor([0.0, -1.0]))
    tensor([1.+0.j, 2.-1.j])
    """
    re, im = (to_float(v) for v in promote(real, imag))
    _require_parts("complex", re)
    return Complex()(*broadcast("complex", re, im))


@op
def polar(abs: Tensor, angle: Tensor):
    """Complex numbers with the given absolute values and angles: abs * exp(i angle).

    >>> td.polar(td.tensor([1.0, 2.0]), td.tensor([0.0, td.pi / 2])).imag
    tensor([0., 2.])
    """
    size, turn = (to_float(v) for v in promote(abs, angle))
    _require_parts("polar", size)
    size, turn = broadcast("polar", size, turn)
    return Complex()(size * F.cos(turn), size * F.sin(turn))


@op
def view_as_real(x: Tensor):
    """Complex numbers as pairs (real, imaginary) along a new last axis. A view.

    x: (*s) complex -> (*s, 2)

    >>> td.view_as_real(td.tensor([1 + 2j, 3 - 4j]))
    tensor([[ 1.,  2.],
            [ 3., -4.]])
    """
    if not x.dtype.is_complex:
        raise DTypeError("view_as_real", f"x is {x.dtype}; it must be complex")
    return AsReal()(x)


@op
def view_as_complex(x: Tensor):
    """Pairs (real, imaginary) along the last axis as complex numbers. A view where the pairs lie side by side in memory.

    x: (*s, 2) -> (*s) complex

    >>> td.view_as_complex(td.tensor([[1.0, 2.0], [3.0, -4.0]]))
    tensor([1.+2.j, 3.-4.j])
    """
    _require_parts("view_as_complex", x)
    if x.ndim == 0 or x.shape[-1] != 2:
        raise ShapeError("view_as_complex", f"x is {show_shape(x.shape)}; its last axis must have size 2")
    return AsComplex()(x)


@op
def isreal(x: Tensor):
    """Where the imaginary part is 0.

    >>> td.isreal(td.tensor([1 + 0j, 1j]))
    tensor([ True, False])
    """
    x = as_value(x)
    return F.equal(imag_of(x), 0) if x.dtype.is_complex else F.full(x.shape, True, dtype=dtypes.bool_)


@op
def iscomplex(x: Tensor):
    """Where the imaginary part is not 0.

    >>> td.iscomplex(td.tensor([1 + 0j, 1j]))
    tensor([False,  True])
    """
    return F.logical_not(F.isreal(x))


@public(method=True)
def is_complex(x: Tensor) -> bool:
    """Whether the dtype is complex.

    >>> td.is_complex(td.tensor([1j]))
    True
    """
    return x.dtype.is_complex


@public(method=True)
def is_floating_point(x: Tensor) -> bool:
    """Whether the dtype is one of the real floating types.

    >>> td.is_floating_point(td.tensor([1.0]))
    True
    """
    return x.dtype.is_floating


@method
def resolve_conj(x):
    """The tensor itself: conjugation is computed at once here."""
    return x


@method
def is_conj(x) -> bool:
    """False: conjugation is computed at once here."""
    return False


@method
def cfloat(x, memory_format=None):
    """This tensor as complex64; itself if it is that already."""
    return x.to(dtypes.complex64, memory_format=memory_format)


@method
def cdouble(x, memory_format=None):
    """This tensor as complex128; itself if it is that already."""
    return x.to(dtypes.complex128, memory_format=memory_format)


alias("conj_physical", conj)
alias("conj_physical_", inplace(conj))
