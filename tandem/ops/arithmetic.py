"""Elementwise arithmetic on two operands, and conversion of types."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError
from tandem.graph.ir import Value
from tandem.ops.define import Elementwise, alias, inplace, op, register
from tandem.ops.prepare import binary, broadcast, promote, to_float


@register
class Cast(Elementwise):
    """Elements converted to another dtype. Floats to integers truncate; anything to bool is `!= 0`."""

    name = "cast"
    dtype: dtypes.DType

    def result_dtype(self, x):
        return self.dtype

    def body(self, b, x):
        return b.cast(x, self.dtype)

    def grad(self, g, x):
        return Cast(x.dtype)(g) if x.dtype.is_inexact else None


@register
class Copy(Elementwise):
    """The same elements in fresh memory."""

    name = "copy"

    def body(self, b, x):
        return x

    def grad(self, g, x):
        return g


@register
class Add(Elementwise):
    name = "add"

    def body(self, b, x, y):
        return x | y if x.dtype.kind == "bool" else x + y

    def grad(self, g, x, y):
        return g, g


@register
class Sub(Elementwise):
    name = "sub"

    def body(self, b, x, y):
        return x - y

    def grad(self, g, x, y):
        return g, -g


@register
class Mul(Elementwise):
    name = "mul"

    def body(self, b, x, y):
        return x & y if x.dtype.kind == "bool" else x * y

    def grad(self, g, x, y):
        return g * y, g * x


@register
class Div(Elementwise):
    """True division of floats."""

    name = "div"

    def body(self, b, x, y):
        return x / y

    def grad(self, g, x, y, *, out):
        return g / y, -g * out / y


@register
class Neg(Elementwise):
    name = "neg"

    def body(self, b, x):
        return -x

    def grad(self, g, x):
        return -g


@op
def add(x: Tensor, y: Tensor, *, alpha=1):
    """Sum of x and alpha * y.

    x, y: broadcastable -> (*broadcast), promoted dtype

    >>> td.add(td.tensor([1.0, 2.0]), 3)
    tensor([4., 5.])
    """
    if alpha != 1:
        y = F.mul(y, alpha)
    return binary("add", Add(), x, y)


@op
def subtract(x: Tensor, y: Tensor, *, alpha=1):
    """Difference of x and alpha * y.

    >>> td.subtract(td.tensor([1.0, 2.0]), 3)
    tensor([-2., -1.])
    """
    if alpha != 1:
        y = F.mul(y, alpha)
    a, b = promote(x, y)
    if a.dtype.kind == "bool":
        raise DTypeError("subtract", "booleans cannot be subtracted", fix="use logical_xor (x ^ y)")
    return Sub()(*broadcast("subtract", a, b))


@op
def multiply(x: Tensor, y: Tensor):
    """Product, element by element.

    >>> td.multiply(td.tensor([1, 2]), td.tensor([3, 4]))
    tensor([3, 8])
    """
    return binary("multiply", Mul(), x, y)


@op
def true_divide(x: Tensor, y: Tensor):
    """Quotient; integers are converted to the default float first.

    >>> td.true_divide(td.tensor([1, 2]), 2)
    tensor([0.5000, 1.0000])
    """
    a, b = promote(x, y)
    return Div()(*broadcast("divide", to_float(a), to_float(b)))


@op
def negative(x: Tensor):
    """-x.

    >>> td.negative(td.tensor([1.0, -2.0]))
    tensor([-1., 2.])
    """
    if x.dtype.kind == "bool":
        raise DTypeError("negative", "booleans have no negative", fix="use logical_not (~x)")
    return Neg()(x)


@op
def clone(x: Tensor):
    """A copy of x with its own memory, part of the gradient computation.

    >>> td.clone(td.tensor([1, 2]))
    tensor([1, 2])
    """
    return Copy()(x)


def cast_to(x: Value, dtype) -> Value:
    dtype = dtypes.as_dtype(dtype)
    return x if x.dtype is dtype else Cast(dtype)(x)


@op
def astype(x: Tensor, dtype, *, copy=True):
    """x converted to another dtype.

    >>> td.astype(td.tensor([1.7, -1.7]), td.int32)
    tensor([1, -1], dtype=int32)
    """
    result = cast_to(x, dtype)
    return Copy()(result) if result is x and copy else result


alias("mul", multiply)
alias("sub", subtract)
alias("div", true_divide)
alias("divide", true_divide)
alias("neg", negative)
inplace(add)
alias("sub_", inplace(subtract))
alias("mul_", inplace(multiply))
alias("div_", inplace(true_divide))
