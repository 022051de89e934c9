"""Trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem.ops.define import Elementwise, alias, inplace, op, register
from tandem.ops.prepare import float_binary, to_float


@register
class Sin(Elementwise):
    name = "sin"
    takes_complex = True

    def body(self, b, x):
        return b.sin(x)

    def grad(self, g, x):
        return g * F.cos(x)


@op
def sin(x: Tensor):
    """Sine.

    >>> td.sin(td.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8415])
    """
    return Sin()(to_float(x))


@register
class Cos(Elementwise):
    name = "cos"
    takes_complex = True

    def body(self, b, x):
        return b.cos(x)

    def grad(self, g, x):
        return -g * F.sin(x)


@op
def cos(x: Tensor):
    """Cosine.

    >>> td.cos(td.tensor([0.0, 1.0]))
    tensor([1.0000, 0.5403])
    """
    return Cos()(to_float(x))


@register
class Tan(Elementwise):
    name = "tan"
    takes_complex = True

    def body(self, b, x):
        return b.tan(x)

    def grad(self, g, x, *, out):
        return g * (out * out + 1)


@op
def tan(x: Tensor):
    """Tangent.

    >>> td.tan(td.tensor([0.0, 1.0]))
    tensor([0.0000, 1.5574])
    """
    return Tan()(to_float(x))


@register
class Asin(Elementwise):
    name = "asin"
    takes_complex = True

    def body(self, b, x):
        return b.asin(x)

    def grad(self, g, x):
        return g * F.rsqrt((1 - x) * (1 + x))


@op
def asin(x: Tensor):
    """Inverse sine; NaN outside [-1, 1].

    >>> td.asin(td.tensor([0.0, 1.0]))
    tensor([0.0000, 1.5708])
    """
    return Asin()(to_float(x))


@register
class Acos(Elementwise):
    name = "acos"
    takes_complex = True

    def body(self, b, x):
        return b.acos(x)

    def grad(self, g, x):
        return -g * F.rsqrt((1 - x) * (1 + x))


@op
def acos(x: Tensor):
    """Inverse cosine; NaN outside [-1, 1].

    >>> td.acos(td.tensor([0.0, 1.0]))
    tensor([1.5708, 0.0000])
    """
    return Acos()(to_float(x))


@register
class Atan(Elementwise):
    name = "atan"
    takes_complex = True

    def body(self, b, x):
        return b.atan(x)

    def grad(self, g, x):
        return g / (x * x + 1)


@op
def atan(x: Tensor):
    """Inverse tangent.

    >>> td.atan(td.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7854])
    """
    return Atan()(to_float(x))


@register
class Sinh(Elementwise):
    name = "sinh"
    takes_complex = True

    def body(self, b, x):
        return b.sinh(x)

    def grad(self, g, x):
        return g * F.cosh(x)


@op
def sinh(x: Tensor):
    """Hyperbolic sine.

    >>> td.sinh(td.tensor([0.0, 1.0]))
    tensor([0.0000, 1.1752])
    """
    return Sinh()(to_float(x))


@register
class Cosh(Elementwise):
    name = "cosh"
    takes_complex = True

    def body(self, b, x):
        return b.cosh(x)

    def grad(self, g, x):
        return g * F.sinh(x)


@op
def cosh(x: Tensor):
    """Hyperbolic cosine.

    >>> td.cosh(td.tensor([0.0, 1.0]))
    tensor([1.0000, 1.5431])
    """
    return Cosh()(to_float(x))


@register
class Asinh(Elementwise):
    name = "asinh"
    takes_complex = True

    def body(self, b, x):
        return b.asinh(x)

    def grad(self, g, x):
        return g * F.rsqrt(x * x + 1)


@op
def asinh(x: Tensor):
    """Inverse hyperbolic sine.

    >>> td.asinh(td.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8814])
    """
    return Asinh()(to_float(x))


@register
class Acosh(Elementwise):
    name = "acosh"
    takes_complex = True

    def body(self, b, x):
        return b.acosh(x)

    def grad(self, g, x):
        if x.dtype.is_complex:  # the root of the product would have another branch cut
            return g / (F.sqrt(x - 1) * F.sqrt(x + 1))
        return g * F.rsqrt((x - 1) * (x + 1))


@op
def acosh(x: Tensor):
    """Inverse hyperbolic cosine; of real numbers NaN below 1.

    >>> td.acosh(td.tensor([1.0, 2.0]))
    tensor([0.0000, 1.3170])
    """
    return Acosh()(to_float(x))


@register
class Atanh(Elementwise):
    name = "atanh"
    takes_complex = True

    def body(self, b, x):
        return b.atanh(x)

    def grad(self, g, x):
        return g / ((1 - x) * (1 + x))


@op
def atanh(x: Tensor):
    """Inverse hyperbolic tangent; NaN outside [-1, 1].

    >>> td.atanh(td.tensor([0.0, 0.5]))
    tensor([0.0000, 0.5493])
    """
    return Atanh()(to_float(x))


@register
class Atan2(Elementwise):
    """The angle of the point (y, x), in (-pi, pi]."""

    name = "atan2"

    def body(self, b, y, x):
        return b.atan2(y, x)

    def grad(self, g, y, x):
        square = x * x + y * y
        return g * x / square, -g * y / square


@op
def atan2(x: Tensor, y: Tensor):
    """Angle of the point whose ordinate is x and whose abscissa is y, in (-pi, pi]: the inverse tangent of x / y with its quadrant.

    >>> td.atan2(td.tensor([1.0, 1.0]), td.tensor([1.0, -1.0]))
    tensor([0.7854, 2.3562])
    """
    return float_binary("atan2", Atan2(), x, y)


@register
class Hypot(Elementwise):
    name = "hypot"

    def body(self, b, x, y):
        return b.hypot(x, y)

    def grad(self, g, x, y, *, out):
        safe = F.where(F.equal(out, 0), 1, out)  # at the origin the gradient is taken as 0
        return g * x / safe, g * y / safe


@op
def hypot(x: Tensor, y: Tensor):
    """sqrt(x * x + y * y) that does not overflow on the way.

    >>> td.hypot(td.tensor([3.0]), td.tensor([4.0]))
    tensor([5.])
    """
    return float_binary("hypot", Hypot(), x, y)


@op
def deg2rad(x: Tensor):
    """Degrees to radians.

    >>> td.deg2rad(td.tensor([180.0]))
    tensor([3.1416])
    """
    return to_float(x) * (math.pi / 180)


@op
def rad2deg(x: Tensor):
    """Radians to degrees.

    >>> td.rad2deg(td.tensor([3.14159265 / 2]))
    tensor([90.])
    """
    return to_float(x) * (180 / math.pi)


alias("arcsin", asin)
alias("arccos", acos)
alias("arctan", atan)
alias("arcsinh", asinh)
alias("arccosh", acosh)
alias("arctanh", atanh)
alias("arctan2", atan2)
for function in (sin, cos, tan, asin, acos, atan, sinh, cosh, asinh, acosh, atanh, atan2, hypot, deg2rad, rad2deg):
    inplace(function)
