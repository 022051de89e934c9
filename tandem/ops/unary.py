"""Elementwise functions of one operand: exponentials, logarithms, roots, signs."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.dtypes import part_dtype
from tandem.ops.complexes import imag_of, real_of
from tandem.ops.define import Elementwise, alias, ends_inplace, inplace, method, op, register
from tandem.ops.prepare import as_value, cast, constant, to_float

LN2 = math.log(2)
LN10 = math.log(10)


@register
class Exp(Elementwise):
    name = "exp"
    takes_complex = True

    def body(self, b, x):
        return b.exp(x)

    def grad(self, g, x, *, out):
        return g * out


@op
def exp(x: Tensor):
    """e to the power of x.

    >>> td.exp(td.tensor([0.0, 1.0]))
    tensor([1.0000, 2.7183])
    """
    return Exp()(to_float(x))


@register
class Exp2(Elementwise):
    name = "exp2"
    takes_complex = True

    def body(self, b, x):
        return b.exp2(x)

    def grad(self, g, x, *, out):
        return g * out * LN2


@op
def exp2(x: Tensor):
    """2 to the power of x.

    >>> td.exp2(td.tensor([0.0, 3.0]))
    tensor([1., 8.])
    """
    return Exp2()(to_float(x))


@register
class Expm1(Elementwise):
    name = "expm1"
    takes_complex = True

    def body(self, b, x):
        return b.expm1(x)

    def grad(self, g, x, *, out):
        return g * (out + 1)


@op
def expm1(x: Tensor):
    """exp(x) - 1, exact for small x too.

    >>> td.expm1(td.tensor([0.0, 1.0]))
    tensor([0.0000, 1.7183])
    """
    return Expm1()(to_float(x))


@register
class Log(Elementwise):
    name = "log"
    takes_complex = True

    def body(self, b, x):
        return b.log(x)

    def grad(self, g, x):
        return g / x


@op
def log(x: Tensor):
    """Natural logarithm.

    >>> td.log(td.tensor([1.0, 10.0]))
    tensor([0.0000, 2.3026])
    """
    return Log()(to_float(x))


@register
class Log2(Elementwise):
    name = "log2"
    takes_complex = True

    def body(self, b, x):
        return b.log2(x)

    def grad(self, g, x):
        return g / (x * LN2)


@op
def log2(x: Tensor):
    """Logarithm to base 2.

    >>> td.log2(td.tensor([1.0, 8.0]))
    tensor([0., 3.])
    """
    return Log2()(to_float(x))


@register
class Log10(Elementwise):
    name = "log10"
    takes_complex = True

    def body(self, b, x):
        return b.log10(x)

    def grad(self, g, x):
        return g / (x * LN10)


@op
def log10(x: Tensor):
    """Logarithm to base 10.

    >>> td.log10(td.tensor([1.0, 100.0]))
    tensor([0., 2.])
    """
    return Log10()(to_float(x))


@register
class Log1p(Elementwise):
    name = "log1p"
    takes_complex = True

    def body(self, b, x):
        return b.log1p(x)

    def grad(self, g, x):
        return g / (x + 1)


@op
def log1p(x: Tensor):
    """log(1 + x), exact for small x too.

    >>> td.log1p(td.tensor([0.0, 1.0]))
    tensor([0.0000, 0.6931])
    """
    return Log1p()(to_float(x))


@register
class Sqrt(Elementwise):
    name = "sqrt"
    takes_complex = True

    def body(self, b, x):
        return b.sqrt(x)

    def grad(self, g, x, *, out):
        return g / (out * 2)


@op
def sqrt(x: Tensor):
    """Square root.

    >>> td.sqrt(td.tensor([4.0, 9.0]))
    tensor([2., 3.])
    """
    return Sqrt()(to_float(x))


@register
class Rsqrt(Elementwise):
    name = "rsqrt"
    takes_complex = True

    def body(self, b, x):
        return b.rsqrt(x)

    def grad(self, g, x, *, out):
        return g * out * out * out * -0.5


@op
def rsqrt(x: Tensor):
    """1 / sqrt(x).

    >>> td.rsqrt(td.tensor([4.0, 0.25]))
    tensor([0.5000, 2.0000])
    """
    return Rsqrt()(to_float(x))


@register
class Cbrt(Elementwise):
    name = "cbrt"

    def body(self, b, x):
        return b.cbrt(x)

    def grad(self, g, x, *, out):
        return g / (out * out * 3)


@op
def cbrt(x: Tensor):
    """Cube root.

    >>> td.cbrt(td.tensor([8.0, -27.0]))
    tensor([ 2., -3.])
    """
    return Cbrt()(to_float(x))


@register
class Reciprocal(Elementwise):
    name = "reciprocal"
    takes_complex = True

    def body(self, b, x):
        return 1.0 / x

    def grad(self, g, x, *, out):
        return -g * out * out


@op
def reciprocal(x: Tensor):
    """1 / x.

    >>> td.reciprocal(td.tensor([2.0, 4.0]))
    tensor([0.5000, 0.2500])
    """
    return Reciprocal()(to_float(x))


@register
class Tanh(Elementwise):
    name = "tanh"
    takes_complex = True

    def body(self, b, x):
        return b.tanh(x)

    def grad(self, g, x, *, out):
        return g * (1 - out * out)


@op
def tanh(x: Tensor):
    """Hyperbolic tangent.

    >>> td.tanh(td.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7616])
    """
    return Tanh()(to_float(x))


@op
def square(x: Tensor):
    """x * x.

    >>> td.square(td.tensor([3, -2]))
    tensor([9, 4])
    """
    x = as_value(x)
    x = cast(x, dtypes.int64) if x.dtype is dtypes.bool_ else x  # as a power
    return F.Mul()(x, x)


@register
class Abs(Elementwise):
    name = "abs"
    fold = staticmethod(abs)
    rounds = True
    takes_complex = True
    holomorphic = False

    def result_dtype(self, x):
        return part_dtype(x)

    def body(self, b, x):
        return x if x.dtype.kind in ("bool", "uint") else b.abs(x)

    def grad(self, g, x):
        return g * F.sign(x)


@op(name="abs")
def abs_(x: Tensor):
    """Absolute value.

    >>> td.abs(td.tensor([-1.5, 2.0]))
    tensor([1.5000, 2.0000])
    """
    return Abs()(as_value(x))


@register
class Sign(Elementwise):
    """-1, 0 or 1; NaN stays NaN. Of complex numbers x / |x|, or 0."""

    name = "sign"
    takes_complex = True
    holomorphic = False

    def body(self, b, x):
        if x.dtype.kind == "bool":
            return x
        if x.dtype.kind == "uint":
            return b.cast(x > 0, x.dtype)
        if x.dtype.is_complex:
            size = b.abs(x)
            zero = size == 0.0
            size = b.where(zero, 1.0, size)
            return b.complex(b.where(zero, 0.0, b.real(x) / size), b.where(zero, 0.0, b.imag(x) / size))
        x = b.widen(x)
        rest = b.where(b.isnan(x), x, b.const(0, x.dtype)) if x.dtype.is_floating else b.const(0, x.dtype)
        return b.where(x > 0, b.const(1, x.dtype), b.where(x < 0, b.const(-1, x.dtype), rest))

    def grad(self, g, x, *, out):
        if not x.dtype.is_complex:
            return F.zeros_like(x)
        # Only what is at right angles to x turns it; nothing at 0.
        size = F.abs(x)
        zero = F.equal(size, 0)
        along = real_of(out) * real_of(g) + imag_of(out) * imag_of(g)
        return F.where(zero, 0, (g - out * along) / F.where(zero, 1, size))


@op
def sign(x: Tensor):
    """-1, 0 or 1 by the sign of x. Of complex numbers x / |x|, the direction.

    >>> td.sign(td.tensor([-2.0, 0.0, 3.0]))
    tensor([-1.,  0.,  1.])
    """
    return Sign()(as_value(x))


def _sign_of_nan(name: str):
    def sign(x):
        made = F.sign(x)
        return F.where(F.isnan(x), 0, made) if x.dtype.is_floating else made

    sign.__name__ = sign.__qualname__ = name
    sign.__doc__ = "td.sign, but 0 for NaN, as in PyTorch."
    method(sign)


for _name in ("sign", "sgn"):
    _sign_of_nan(_name)


@op
def positive(x: Tensor):
    """+x: x itself, as another tensor on the same memory.

    >>> td.positive(td.tensor([1, -2]))
    tensor([ 1, -2])
    """
    return as_value(x)


@op
def relu(x: Tensor):
    """max(x, 0); NaN stays.

    >>> td.relu(td.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    return Relu()(x)


@register
class Relu(Elementwise):
    name = "relu"

    def body(self, b, x):
        return b.max(x, b.const(0, x.dtype))

    def grad(self, g, x, *, out):
        return F.Where()(F.Less()(constant(0, out.dtype), out), g, constant(0, g.dtype))


alias("absolute", abs_)
for function in (
    exp,
    exp2,
    expm1,
    log,
    log2,
    log10,
    log1p,
    sqrt,
    rsqrt,
    cbrt,
    reciprocal,
    tanh,
    square,
    abs_,
    sign,
    relu,
):
    inplace(function)
ends_inplace(relu)
