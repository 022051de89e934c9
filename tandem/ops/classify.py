"""What kind of number an element is: NaN, infinite, negative; and closeness of two."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError
from tandem.ops.define import Elementwise, inplace, op, public, register
from tandem.ops.prepare import as_dtype_value, as_value, broadcast, float_binary, promote, promote_to_compare, to_float


class _Test(Elementwise):
    def result_dtype(self, x):
        return dtypes.bool_


@register
class IsNan(_Test):
    name = "isnan"
    takes_complex = True

    def body(self, b, x):
        return b.isnan(x)


@register
class IsInf(_Test):
    name = "isinf"
    takes_complex = True

    def body(self, b, x):
        if x.dtype.is_complex:
            return (b.abs(b.real(x)) == math.inf) | (b.abs(b.imag(x)) == math.inf)
        return b.abs(x) == math.inf if x.dtype.is_floating else b.const(False, dtypes.bool_)


@register
class IsFinite(_Test):
    name = "isfinite"
    takes_complex = True

    def body(self, b, x):
        if x.dtype.is_complex:
            return (b.abs(b.real(x)) < math.inf) & (b.abs(b.imag(x)) < math.inf)
        return b.abs(x) < math.inf if x.dtype.is_floating else b.const(True, dtypes.bool_)


@register
class SignBit(_Test):
    name = "signbit"

    def body(self, b, x):
        if x.dtype.kind == "int":
            return x < 0
        if not x.dtype.is_floating:
            return b.const(False, dtypes.bool_)
        x = b.widen(x)
        return b.copysign(b.const(1, x.dtype), x) < 0


@op
def isnan(x: Tensor):
    """Where x is NaN.

    >>> td.isnan(td.tensor([1.0, float("nan")]))
    tensor([False,  True])
    """
    return IsNan()(as_value(x))


@op
def isinf(x: Tensor):
    """Where x is infinite.

    >>> td.isinf(td.tensor([1.0, float("-inf")]))
    tensor([False,  True])
    """
    return IsInf()(as_value(x))


@op
def isfinite(x: Tensor):
    """Where x is neither infinite nor NaN.

    >>> td.isfinite(td.tensor([1.0, float("inf")]))
    tensor([ True, False])
    """
    return IsFinite()(as_value(x))


@op
def isposinf(x: Tensor):
    """Where x is plus infinity.

    >>> td.isposinf(td.tensor([float("-inf"), float("inf")]))
    tensor([False,  True])
    """
    return F.equal(to_float(x), math.inf)


@op
def isneginf(x: Tensor):
    """Where x is minus infinity.

    >>> td.isneginf(td.tensor([float("-inf"), float("inf")]))
    tensor([ True, False])
    """
    return F.equal(to_float(x), -math.inf)


@op
def signbit(x: Tensor):
    """Where the sign bit is set: negative numbers and -0.0.

    >>> td.signbit(td.tensor([-0.0, 0.0, -3.0]))
    tensor([ True, False,  True])
    """
    return SignBit()(as_value(x))


@register
class Copysign(Elementwise):
    name = "copysign"

    def body(self, b, x, y):
        return b.copysign(x, y)

    def grad(self, g, x, y):
        return g * F.sign(x) * F.copysign(F.ones_like(y), y), F.zeros_like(y)


@op
def copysign(x: Tensor, y: Tensor):
    """The size of x with the sign of y.

    >>> td.copysign(td.tensor([1.0, -2.0]), -0.0)
    tensor([-1., -2.])
    """
    return float_binary("copysign", Copysign(), x, y)


@register
class NextAfter(Elementwise):
    name = "nextafter"

    def body(self, b, x, y):
        return b.nextafter(x, y)

    def grad(self, g, x, y):
        return g, F.zeros_like(y)


@op
def nextafter(x: Tensor, y: Tensor):
    """The next float after x in the direction of y; float32 or float64.

    >>> td.nextafter(td.tensor([1.0]), td.tensor([2.0])) > 1
    tensor([True])
    """
    x, y = promote(x, y)
    if x.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError("nextafter", f"{x.dtype} has no next float here; float32 or float64 is needed")
    return NextAfter()(*broadcast("nextafter", x, y))


@op
def isclose(x: Tensor, y: Tensor, rtol: Tensor = 1e-5, atol: Tensor = 1e-8, equal_nan=False):
    """Where |x - y| <= atol + rtol * |y|; infinities are close to themselves.

    >>> td.isclose(td.tensor([1.0, 2.0]), td.tensor([1.0, 2.1]))
    tensor([ True, False])
    """
    x, y = broadcast("isclose", *promote_to_compare(x, y))
    same = F.equal(x, y)
    a, b = to_float(x), to_float(y)
    near = F.less_equal(F.abs(a - b), F.abs(b) * rtol + atol)
    result = F.logical_or(same, F.logical_and(near, F.isfinite(b)))
    if equal_nan:
        result = F.logical_or(result, F.logical_and(F.isnan(x), F.isnan(y)))
    return result


@public(method=True)
def allclose(x: Tensor, y: Tensor, rtol=1e-5, atol=1e-8, equal_nan=False) -> bool:
    """Whether all elements are close; see isclose.

    >>> td.allclose(td.tensor([1.0, 2.0]), td.tensor([1.0, 2.0]))
    True
    """
    return bool(F.all(F.isclose(x, y, rtol, atol, equal_nan)))


@op
def nan_to_num(x: Tensor, nan: Tensor | None = 0.0, posinf: Tensor | None = None, neginf: Tensor | None = None):
    """x with NaN replaced by nan, infinities by posinf and neginf (the largest and lowest finite numbers by default).

    >>> td.nan_to_num(td.tensor([1.0, float("nan")]))
    tensor([1., 0.])
    """
    x = as_value(x)
    if x.dtype.is_complex:
        return F.complex(*(F.nan_to_num(part, nan, posinf, neginf) for part in (F.real(x), F.imag(x))))
    if not x.dtype.is_floating:
        return F.Copy()(x)
    import ml_dtypes

    largest = float(ml_dtypes.finfo(x.dtype.numpy).max)
    result = F.where(F.isnan(x), as_dtype_value(0.0 if nan is None else nan, x.dtype), x)
    result = F.where(F.isposinf(x), as_dtype_value(largest if posinf is None else posinf, x.dtype), result)
    return F.where(F.isneginf(x), as_dtype_value(-largest if neginf is None else neginf, x.dtype), result)


for function in (copysign, nan_to_num):
    inplace(function)
