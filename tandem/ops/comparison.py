"""Comparison, logic and selection."""

from __future__ import annotations

import operator

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import is_general
from tandem.ops.define import Elementwise, LibraryOp, alias, inplace, method, op, public, register
from tandem.ops.prepare import (
    as_dtype_value,
    assigned,
    binary,
    broadcast,
    cast,
    constant,
    integer_range,
    nearest,
    promote,
    promote_to_compare,
    result_dtype,
    show_shape,
    weak_kind,
)


class _Comparison(Elementwise):
    def result_dtype(self, x, y):
        return dtypes.bool_


def exact_extremum(pick):
    """The larger or smaller of two constants. NaN propagates, and of 0.0 and -0.0 the kernel chooses."""
    return staticmethod(lambda a, b: None if a != a or b != b or (a == 0 and b == 0) else pick(a, b))


@register
class Equal(_Comparison):
    name = "equal"
    commutative = True
    fold = staticmethod(operator.eq)
    takes_complex = True

    def body(self, b, x, y):
        return x == y


@register
class NotEqual(_Comparison):
    name = "not_equal"
    commutative = True
    fold = staticmethod(operator.ne)
    takes_complex = True

    def body(self, b, x, y):
        return x != y


@register
class Less(_Comparison):
    name = "less"
    fold = staticmethod(operator.lt)

    def body(self, b, x, y):
        return x < y


@register
class LessEqual(_Comparison):
    name = "less_equal"
    fold = staticmethod(operator.le)

    def body(self, b, x, y):
        return x <= y


def _compare(name: str, comparison: _Comparison, x, y) -> Value:
    """comparison(x, y); a Python integer counts with its own value, also where the type of the other operand has no room for it."""
    for number, tensor, first in ((x, y, True), (y, x, False)):
        if weak_kind(number) == "int" and weak_kind(tensor) is None:
            if tensor.dtype.is_integer and tensor.dtype is not dtypes.int64:
                return _compare_integer(name, comparison, number, tensor, first)
    return binary(name, comparison, x, y)


def _compare_integer(name: str, comparison: _Comparison, number, tensor: Value, first: bool) -> Value:
    """The number takes part as the nearest that the tensor's type holds, which is wrong only where an element is that one."""
    low, high = (constant(limit, dtypes.int64) for limit in _int64_range(tensor.dtype))
    wide, near = as_dtype_value(number, dtypes.int64), nearest(number, tensor.dtype)
    below, above = Less()(wide, low), Less()(high, wide)
    result = comparison(*broadcast(name, *((near, tensor) if first else (tensor, near))))
    if isinstance(comparison, Equal):
        return F.logical_and(result, F.logical_not(F.logical_or(below, above)))
    if isinstance(comparison, NotEqual):
        return F.logical_or(result, F.logical_or(below, above))
    if isinstance(comparison, Less):
        return F.logical_or(result, below if first else above)
    return F.logical_and(result, F.logical_not(above if first else below))


def _int64_range(dtype: dtypes.DType) -> tuple[int, int]:
    low, high = integer_range(dtype)
    return low, min(high, 2**63 - 1)


@op
def equal(x: Tensor, y: Tensor):
    """x == y, element by element.

    >>> td.equal(td.tensor([1, 2]), 2)
    tensor([False,  True])
    """
    return _compare("equal", Equal(), x, y)


@op
def not_equal(x: Tensor, y: Tensor):
    """x != y, element by element.

    >>> td.not_equal(td.tensor([1, 2]), 2)
    tensor([ True, False])
    """
    return _compare("not_equal", NotEqual(), x, y)


@op
def less(x: Tensor, y: Tensor):
    """x < y, element by element.

    >>> td.less(td.tensor([1, 2]), 2)
    tensor([ True, False])
    """
    return _compare("less", Less(), x, y)


@op
def less_equal(x: Tensor, y: Tensor):
    """x <= y, element by element.

    >>> td.less_equal(td.tensor([1, 3]), 2)
    tensor([ True, False])
    """
    return _compare("less_equal", LessEqual(), x, y)


@op
def greater(x: Tensor, y: Tensor):
    """x > y, element by element.

    >>> td.greater(td.tensor([1, 3]), 2)
    tensor([False,  True])
    """
    return _compare("greater", Less(), y, x)


@op
def greater_equal(x: Tensor, y: Tensor):
    """x >= y, element by element.

    >>> td.greater_equal(td.tensor([1, 3]), 3)
    tensor([False,  True])
    """
    return _compare("greater_equal", LessEqual(), y, x)


# -- selection


@register
class Where(Elementwise):
    """condition ? x : y"""

    name = "where"
    fold = staticmethod(lambda condition, a, b: a if condition else b)
    takes_complex = True
    holomorphic = False

    def result_dtype(self, condition, x, y):
        return x

    def body(self, b, condition, x, y):
        return b.where(condition, x, y)

    def grad(self, g, condition, x, y):
        zero = constant(0, g.dtype)
        return None, Where()(condition, g, zero), Where()(condition, zero, g)


def to_bool(x):
    return as_dtype_value(x, dtypes.bool_)


@op(name="where", hidden=True)
def _where(condition: Tensor, x: Written, y: Written):
    x, y = promote(x, y)
    return Where()(*broadcast("where", to_bool(condition), x, y))


@public
def where(condition, x=None, y=None):
    """x where condition holds, y elsewhere; all three broadcast. With the condition alone: the positions where it holds, one
    index tensor per axis.

    >>> td.where(td.tensor([True, False]), 1.0, 2.0)
    tensor([1., 2.])
    >>> td.where(td.tensor([0, 5, 7]))
    (tensor([1, 2]),)
    """
    if x is None and y is None:
        return F.nonzero(condition, as_tuple=True)
    return _where(condition, x, y)


@method(name="where")
def _where_method(x, condition, y):
    """x where condition holds, y elsewhere."""
    return _where(condition, x, y)


@op
def masked_fill(x: Tensor, mask: Tensor, value: Written):
    """x with value where mask holds.

    >>> td.masked_fill(td.tensor([1.0, 2.0]), td.tensor([True, False]), 0)
    tensor([0., 2.])
    """
    if value.ndim > 0:
        raise ShapeError("masked_fill", f"value is {show_shape(value.shape)}; it must be a number or have no axes",
                         fix="use td.where(mask, value, x)")  # fmt: skip
    return Where()(*broadcast("masked_fill", to_bool(mask), assigned("masked_fill", value, x.dtype), x))


@register
class Maximum(Elementwise):
    """The larger of two; NaN if either is."""

    name = "maximum"
    commutative = True
    fold = exact_extremum(max)
    rounds = True

    def body(self, b, x, y):
        return x | y if x.dtype.kind == "bool" else b.max(x, y)

    def grad(self, g, x, y):
        return _extremum_grad(g, x, y)


@register
class Minimum(Elementwise):
    """The smaller of two; NaN if either is."""

    name = "minimum"
    commutative = True
    fold = exact_extremum(min)
    rounds = True

    def body(self, b, x, y):
        return x & y if x.dtype.kind == "bool" else b.min(x, y)

    def grad(self, g, x, y):
        gy, gx = _extremum_grad(g, x, y)
        return gx, gy


def _extremum_grad(g, x, y):
    """Gradients for the larger operand; equal operands share it."""
    share = F.where(F.Equal()(x, y), constant(0.5, g.dtype), cast(F.Less()(y, x), g.dtype))
    return g * share, g * (1 - share)


def _extremum(name: str, primitive: Elementwise, x, y) -> Value:
    dtype = result_dtype(x, y)
    return primitive(*broadcast(name, nearest(x, dtype), nearest(y, dtype)))


@op
def maximum(x: Tensor, y: Tensor):
    """The larger of x and y, element by element; NaN if either is.

    >>> td.maximum(td.tensor([1.0, 5.0]), 3.0)
    tensor([3., 5.])
    """
    return _extremum("maximum", Maximum(), x, y)


@op
def minimum(x: Tensor, y: Tensor):
    """The smaller of x and y, element by element; NaN if either is.

    >>> td.minimum(td.tensor([1.0, 5.0]), 3.0)
    tensor([1., 3.])
    """
    return _extremum("minimum", Minimum(), x, y)


@op
def clip(x: Tensor, min: Tensor | None = None, max: Tensor | None = None):
    """x limited to [min, max]; either may be None. NaN, also as a limit, gives NaN. The gradient is 1 inside and at the limits,
    0 outside.

    >>> td.clip(td.tensor([-1.0, 0.5, 2.0]), 0.0, 1.0)
    tensor([0.0000, 0.5000, 1.0000])
    """
    dtype = result_dtype(*(v for v in (x, min, max) if v is not None))
    out = as_dtype_value(x, dtype)
    if min is not None:
        low, value = broadcast("clip", nearest(min, dtype), out)
        out = _bounded(Less()(value, low), value, low)
    if max is not None:
        high, value = broadcast("clip", nearest(max, dtype), out)
        out = _bounded(Less()(high, value), value, high)
    return F.Copy()(out) if out is x else out


def _bounded(beyond: Value, value: Value, bound: Value) -> Value:
    """The bound where the value is beyond it or the bound is NaN; the value, also a NaN, elsewhere."""
    if value.dtype.is_floating:
        beyond = F.Add()(beyond, F.isnan(bound))  # or
    return Where()(beyond, bound, value)


@op
def clamp_min(x: Tensor, min: Tensor):
    """x, but at least min.

    >>> td.clamp_min(td.tensor([-1.0, 2.0]), 0)
    tensor([0., 2.])
    """
    return F.clip(x, min, None)


@op
def clamp_max(x: Tensor, max: Tensor):
    """x, but at most max.

    >>> td.clamp_max(td.tensor([-1.0, 2.0]), 0)
    tensor([-1.,  0.])
    """
    return F.clip(x, None, max)


# -- logic


@register
class LogicalNot(Elementwise):
    name = "logical_not"
    fold = staticmethod(operator.not_)

    def body(self, b, x):
        return ~x


@op
def logical_not(x: Tensor):
    """not x, element by element; numbers count as x != 0.

    >>> td.logical_not(td.tensor([True, False]))
    tensor([False,  True])
    """
    return LogicalNot()(to_bool(x))


@op
def logical_and(x: Tensor, y: Tensor):
    """x and y, element by element.

    >>> td.logical_and(td.tensor([True, True]), td.tensor([True, False]))
    tensor([ True, False])
    """
    return F.Mul()(*broadcast("logical_and", to_bool(x), to_bool(y)))


@op
def logical_or(x: Tensor, y: Tensor):
    """x or y, element by element.

    >>> td.logical_or(td.tensor([True, False]), td.tensor([False, False]))
    tensor([ True, False])
    """
    return F.Add()(*broadcast("logical_or", to_bool(x), to_bool(y)))


@op
def logical_xor(x: Tensor, y: Tensor):
    """Either x or y, element by element.

    >>> td.logical_xor(td.tensor([True, True]), td.tensor([True, False]))
    tensor([False,  True])
    """
    return NotEqual()(*broadcast("logical_xor", to_bool(x), to_bool(y)))


@register
class IsIn(LibraryOp):
    """Where an element of x equals one of a vector of values: looked up in a table of them."""

    name = "isin"
    routine = "isin"
    only_on = "cpu"
    takes = "T[*s] T[n]"

    def infer(self, x: Type, values: Type) -> Type:
        return x.with_dtype(dtypes.bool_)

    def composed(self, x, values):
        line = F.sort(values)
        place = F.minimum(F.searchsorted(line, x), values.shape[0] - 1)
        return F.equal(F.take(line, place), x)


_FEW = 8  # up to so many values, comparing with each is quicker than looking them up


@op
def isin(x: Tensor, values: Tensor, *, invert=False):
    """Where an element of x is among values.

    >>> td.isin(td.tensor([1, 2, 3]), td.tensor([3, 1]))
    tensor([ True, False,  True])
    """
    x, values = promote_to_compare(x, values)
    values = F.Reshape((values.type.numel,))(values)
    if not is_general(values.shape[0]) and values.shape[0] <= _FEW:
        values = F.Reshape((1,) * x.ndim + values.shape)(values)
        found = F.any(F.equal(F.Reshape((*x.shape, 1))(x), values), -1)
    else:
        found = IsIn()(F.stop_gradient(x), F.stop_gradient(values))
    return F.logical_not(found) if invert else found


@op
def fmax(x: Tensor, y: Tensor):
    """The larger of x and y, element by element; a NaN loses against any number.

    >>> td.fmax(td.tensor([1.0, float("nan")]), 0.0)
    tensor([1., 0.])
    """
    dtype = result_dtype(x, y)
    x, y = broadcast("fmax", nearest(x, dtype), nearest(y, dtype))
    return F.where(
        F.logical_or(F.greater_equal(x, y), F.isnan(y)), x, y
    )  # of equal ones x has the gradient, as in PyTorch


@op
def fmin(x: Tensor, y: Tensor):
    """The smaller of x and y, element by element; a NaN loses against any number.

    >>> td.fmin(td.tensor([1.0, float("nan")]), 0.0)
    tensor([0., 0.])
    """
    dtype = result_dtype(x, y)
    x, y = broadcast("fmin", nearest(x, dtype), nearest(y, dtype))
    return F.where(F.logical_or(F.less_equal(x, y), F.isnan(y)), x, y)


@public(method=True)
def array_equal(x: Tensor, y: Tensor) -> bool:
    """Whether x and y have the same shape and equal elements.

    >>> td.array_equal(td.tensor([1, 2]), td.tensor([1, 2]))
    True
    """
    return tuple(x.shape) == tuple(y.shape) and bool(F.all(F.equal(x, y)))


for name, function in {
    "eq": equal, "ne": not_equal, "lt": less, "le": less_equal, "gt": greater, "ge": greater_equal
}.items():  # fmt: skip
    alias(name, function)
for function in (logical_not, logical_and, logical_or, logical_xor):
    inplace(function)
alias("clamp", clip)
inplace(clamp_min)
inplace(clamp_max)
inplace(masked_fill)
alias("clamp_", inplace(clip))
