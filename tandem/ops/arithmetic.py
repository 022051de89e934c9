"""Elementwise arithmetic on two operands, and conversion of types."""

from __future__ import annotations

import math
import operator

import tandem.ops as F
from tandem import dtypes
from tandem.devices import as_device
from tandem.errors import DTypeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.ops.define import Elementwise, alias, inplace, method, op, register
from tandem.ops.memory_format import in_format
from tandem.ops.precision import in_float32, with_exact_factors
from tandem.ops.prepare import (
    as_dtype_value,
    as_value,
    binary,
    broadcast,
    float_binary,
    promote,
    promote_float,
    result_dtype,
)  # fmt: skip

LN2 = math.log(2)


@register
class Cast(Elementwise):
    """Elements converted to another dtype. Floats to integers truncate; anything to bool is `!= 0`."""

    name = "cast"
    fold = staticmethod(lambda a: a)
    takes_complex = True
    holomorphic = False
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
    fold = staticmethod(lambda a: a)
    takes_complex = True
    holomorphic = False

    def body(self, b, x):
        return x

    def grad(self, g, x):
        return g


@register
class Add(Elementwise):
    name = "add"
    commutative = True
    fold = staticmethod(operator.add)
    rounds = True
    takes_complex = True
    holomorphic = False

    def body(self, b, x, y):
        return x | y if x.dtype.kind == "bool" else x + y

    def grad(self, g, x, y):
        return g, g


@register
class Sub(Elementwise):
    name = "sub"
    fold = staticmethod(operator.sub)
    rounds = True
    takes_complex = True
    holomorphic = False

    def body(self, b, x, y):
        return x - y

    def grad(self, g, x, y):
        return g, -g


@register
class Mul(Elementwise):
    name = "mul"
    commutative = True
    fold = staticmethod(operator.mul)
    rounds = True
    takes_complex = True

    def body(self, b, x, y):
        return x & y if x.dtype.kind == "bool" else x * y

    def grad(self, g, x, y):
        return g * y, g * x


@register
class Div(Elementwise):
    """True division of floats."""

    name = "div"
    fold = staticmethod(lambda a, b: None if b == 0 else a / b)
    rounds = True
    takes_complex = True

    def body(self, b, x, y):
        return x / y

    def grad(self, g, x, y):
        return g / y, -g * (x / y) / y  # not by the result, which a program may go on to change in place


@register
class Neg(Elementwise):
    name = "neg"
    fold = staticmethod(operator.neg)
    rounds = True
    takes_complex = True
    holomorphic = False

    def body(self, b, x):
        return -x

    def grad(self, g, x):
        return -g


def _times(x, y, alpha) -> Value:
    """alpha * y as it is added to x, in the type of the sum: in its own, y may have no room for it."""
    return F.mul(as_dtype_value(y, result_dtype(x, y, alpha)), alpha)


@op
def add(x: Tensor, y: Tensor, *, alpha: Factor | None = None):
    """Sum of x and alpha * y.

    x, y: broadcastable -> (*broadcast), promoted dtype

    >>> td.add(td.tensor([1.0, 2.0]), 3)
    tensor([4., 5.])
    """
    if alpha is not None:  # an input, not a setting: a new step size needs no new plan
        y = _times(x, y, alpha)
    return binary("add", Add(), x, y)


@op
def subtract(x: Tensor, y: Tensor, *, alpha: Factor | None = None):
    """Difference of x and alpha * y.

    >>> td.subtract(td.tensor([1.0, 2.0]), 3)
    tensor([-2., -1.])
    """
    if alpha is not None:  # an input, not a setting: a new step size needs no new plan
        y = _times(x, y, alpha)
    a, b = promote(x, y)
    if a.dtype.kind == "bool":
        raise DTypeError("subtract", "booleans cannot be subtracted", fix="use logical_xor (x ^ y)")
    return Sub()(*broadcast("subtract", a, b))


@op
@with_exact_factors
def multiply(x: Tensor, y: Tensor):
    """Product, element by element.

    >>> td.multiply(td.tensor([1, 2]), td.tensor([3, 4]))
    tensor([3, 8])
    """
    return binary("multiply", Mul(), x, y)


@op
@with_exact_factors
def true_divide(x: Tensor, y: Tensor, *, rounding_mode=None):
    """Quotient; integers are converted to the default float first. rounding_mode "floor" or "trunc" rounds it to a whole number
    instead, and keeps integers.

    >>> td.true_divide(td.tensor([1, 2]), 2)
    tensor([0.5000, 1.0000])
    """
    if rounding_mode is not None:
        if rounding_mode not in ("floor", "trunc"):
            raise ValueRangeError("divide", f"rounding_mode is {rounding_mode!r}; it must be None, 'floor' or 'trunc'")
        x, y = promote(x, y)  # a number too is looked at by the plan: true division may have it 0
        return F.floor_divide(x, y) if rounding_mode == "floor" else F.trunc_divide(x, y)
    return float_binary("divide", Div(), x, y)


@op
def negative(x: Tensor):
    """-x.

    >>> td.negative(td.tensor([1.0, -2.0]))
    tensor([-1.,  2.])
    """
    x = as_value(x)
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
def astype(x: Tensor, dtype, *, copy=True, device=None):
    """x converted to another dtype; with copy=False, itself if it has that dtype. Complex numbers do not become real ones: take
    x.real or abs(x).

    >>> td.astype(td.tensor([1.7, -1.7]), td.int32)
    tensor([ 1, -1], dtype=int32)
    """
    if device is not None:
        as_device(device)
    dtype = dtypes.as_dtype(dtype)
    if x.dtype.is_complex and not dtype.is_complex and dtype.kind != "bool":
        raise DTypeError(
            "astype",
            f"x is {x.dtype} and cannot become {dtype} without losing its imaginary part",
            fix="take x.real, x.imag or abs(x)",
        )
    result = cast_to(x, dtype)
    return Copy()(result) if result is x and copy else result


@op(internal=True)
def converted(x: Tensor, dtype):
    """x as another dtype; of complex numbers a real one takes the real part, as PyTorch's `to` does."""
    return cast_to(x, dtype)


@register
class StopGradient(Elementwise):
    """The same elements, as a constant to whoever differentiates."""

    name = "stop_gradient"
    takes_complex = True
    holomorphic = False

    def body(self, b, x):
        return x


@op
def stop_gradient(x: Tensor):
    """x as a constant: no gradient flows through.

    >>> td.stop_gradient(td.tensor([1.0], requires_grad=True)).requires_grad
    False
    """
    return StopGradient()(x)


@register
class LogAddExp(Elementwise):
    name = "logaddexp"

    def body(self, b, x, y):
        return b.logaddexp(x, y)

    def grad(self, g, x, y):
        # Equal infinities have no difference; they share the gradient.
        difference = F.where(F.logical_and(F.equal(x, y), F.isinf(x)), 0, x - y)
        share = F.sigmoid(difference)
        return g * share, g * F.sigmoid(-difference)


@op
def logaddexp(x: Tensor, y: Tensor):
    """log(exp(x) + exp(y)) that does not overflow on the way.

    >>> td.logaddexp(td.tensor([0.0, 1000.0]), td.tensor([0.0, 1000.0]))
    tensor([   0.6931, 1000.6932])
    """
    x, y = promote(x, y)
    if x.dtype.is_complex:
        x, y = broadcast("logaddexp", x, y)
        first = F.greater_equal(F.real(x), F.real(y))
        large, small = F.where(first, x, y), F.where(first, y, x)
        return large + F.log1p(F.exp(small - large))
    return float_binary("logaddexp", LogAddExp(), x, y)


@op
def logaddexp2(x: Tensor, y: Tensor):
    """log2(2 ** x + 2 ** y) that does not overflow on the way.

    >>> td.logaddexp2(td.tensor([0.0]), td.tensor([0.0]))
    tensor([1.])
    """
    return F.logaddexp(F.multiply(x, LN2), F.multiply(y, LN2)) / LN2


@op
@in_float32
def lerp(x: Tensor, end: Tensor, weight: Tensor):
    """Linear interpolation x + weight * (end - x); exactly x at weight 0 and end at weight 1.

    >>> td.lerp(td.tensor([0.0, 10.0]), td.tensor([10.0, 20.0]), 0.5)
    tensor([ 5., 15.])
    """
    x, end, weight = promote_float(x, end, weight)
    x, end, weight = broadcast("lerp", x, end, weight)
    step = end - x
    if x.dtype.is_complex:
        return F.where(F.less(F.abs(weight), 0.5), x + weight * step, end - (1 - weight) * step)
    return F.where(F.less(weight, 0.5), x + weight * step, end - (1 - weight) * step)


@op
@in_float32
def addcmul(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Factor = 1):
    """x + value * tensor1 * tensor2.

    >>> td.addcmul(td.tensor([1.0]), td.tensor([2.0]), td.tensor([3.0]), value=0.5)
    tensor([4.])
    """
    dtype = result_dtype(x, tensor1, tensor2, value)  # that of the sum, in which there is room for the product
    return F.add(x, F.multiply(F.multiply(as_dtype_value(tensor1, dtype), as_dtype_value(tensor2, dtype)), value))


@op
@in_float32
def addcdiv(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Tensor = 1):
    """x + value * tensor1 / tensor2, where not both of these are integers.

    >>> td.addcdiv(td.tensor([1.0]), td.tensor([6.0]), td.tensor([3.0]), value=0.5)
    tensor([2.])
    """
    if not any(t.dtype.is_inexact for t in (tensor1, tensor2)):
        raise DTypeError(
            "addcdiv",
            f"tensor1 is {tensor1.dtype} and tensor2 {tensor2.dtype}; integers are divided in more ways than one",
            fix="say which: x + value * (tensor1 / tensor2), or td.div(tensor1, tensor2, rounding_mode=...)",
        )
    return F.add(x, F.multiply(F.true_divide(tensor1, tensor2), value))


def _converter(name: str, dtype: dtypes.DType):
    def convert(x, memory_format=None):
        made = x if x.dtype is dtype else F.converted(x, dtype)
        return made if memory_format is None else in_format(made, memory_format)

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = f"This tensor as {dtype}; itself if it is that already."
    method(convert, name=name)


for name, dtype in {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16, "bool": dtypes.bool_,
    "int": dtypes.int32, "long": dtypes.int64, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8,
}.items():  # fmt: skip
    _converter(name, dtype)


@method
def type_as(x, other):
    """This tensor with the dtype of another."""
    return x if x.dtype is other.dtype else F.astype(x, other.dtype)


alias("mul", multiply)
alias("sub", subtract)
alias("div", true_divide)
alias("divide", true_divide)
alias("neg", negative)
alias("neg_", inplace(negative))
inplace(add)
for function in (lerp, addcmul, addcdiv, logaddexp):
    inplace(function)
alias("sub_", inplace(subtract))
alias("mul_", inplace(multiply))
alias("div_", inplace(true_divide))
