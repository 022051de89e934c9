"""Elementwise functions of one operand: exponentials, trigonometry, rounding."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem.ops.define import Elementwise, inplace, op, register
from tandem.ops.prepare import constant, to_float


@register
class Exp(Elementwise):
    name = "exp"

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
class Log(Elementwise):
    name = "log"

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
class Sqrt(Elementwise):
    name = "sqrt"

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
class Tanh(Elementwise):
    name = "tanh"

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


@register
class Erf(Elementwise):
    name = "erf"

    def body(self, b, x):
        return b.erf(x)

    def grad(self, g, x):
        return g * (2 / math.sqrt(math.pi)) * F.exp(-(x * x))


@op
def erf(x: Tensor):
    """The error function.

    >>> td.erf(td.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8427])
    """
    return Erf()(to_float(x))


@register
class Abs(Elementwise):
    name = "abs"

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
    return Abs()(x)


@register
class Sign(Elementwise):
    """-1, 0 or 1; NaN stays NaN."""

    name = "sign"

    def body(self, b, x):
        if x.dtype.kind == "bool":
            return x
        if x.dtype.kind == "uint":
            return b.cast(x > 0, x.dtype)
        ones = b.where(x > 0, b.const(1, x.dtype), b.where(x < 0, b.const(-1, x.dtype), x * 0 if x.dtype.is_floating else b.const(0, x.dtype)))
        return ones

    def grad(self, g, x):
        return F.zeros_like(x)


@op
def sign(x: Tensor):
    """-1, 0 or 1 by the sign of x.

    >>> td.sign(td.tensor([-2.0, 0.0, 3.0]))
    tensor([-1., 0., 1.])
    """
    return Sign()(x)


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


inplace(relu)
