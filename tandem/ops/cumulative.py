"""Running sums, products and extrema along an axis."""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ShapeError
from tandem.graph.ir import Type, Value
from tandem.ops import rules
from tandem.ops.define import LibraryOp, inplace, op, public, register
from tandem.ops.precision import in_float32, widen
from tandem.ops.prepare import as_value, cast, constant, full_expand, normalize_axis, to_float
from tandem.ops.reduce import sum_dtype

_KINDS = ("sum", "prod", "max", "min", "logsum")


@register
class Cumulative(LibraryOp):
    """out[i] combines x[0] to x[i] along axis; in reverse, x[i] to the last. kind: sum, prod, max, min (NaN propagates), logsum."""

    name = "cumulative"
    batching = "axis"
    takes_complex = True
    routine = "cumulative"
    axis: int
    kind: str
    reverse: bool = False
    takes = "?[*s]"

    @property
    def holomorphic(self):
        return self.kind == "prod"

    def infer(self, x: Type) -> Type:
        if x.dtype.is_complex and self.kind in ("max", "min"):
            raise DTypeError(f"cum{self.kind}", f"x is {x.dtype}; complex numbers have no order")
        return x

    def rule(self, x: Type):
        rules.one_of(self, "kind", self.kind, _KINDS)

    def attributes(self, x):
        return (self.axis, _KINDS.index(self.kind), int(self.reverse)), ()

    def grad(self, g, x, *, out):
        if self.kind == "sum":
            return Cumulative(self.axis, "sum", not self.reverse)(g)
        if self.kind == "prod":
            # out[i] changes with x[k], k <= i, by the product of all before k times that from k+1 to i. The sums over i of the
            # latter times g[i] are a linear recurrence; nothing is divided by x, so zeros do no harm.
            factors = _shifted(x, self.axis, not self.reverse, 1)
            sums = LinearScan(self.axis, not self.reverse)(factors, g)
            return _shifted(out, self.axis, self.reverse, 1) * sums
        if self.kind == "logsum":
            # The sum over i >= k of g[i] exp(x[k] - out[i]): that of g[i] exp(out[k] - out[i]) is a linear recurrence whose
            # factors are at most 1, so that nothing overflows.
            after = _shifted(out, self.axis, not self.reverse, 0)
            sums = LinearScan(self.axis, not self.reverse)(_share(out, after), g)
            return F.where(F.equal(out, float("-inf")), 0, _share(x, out)) * sums
        raise AssertionError("max and min are differentiated through their positions")


def _share(x: Value, y: Value) -> Value:
    """exp(x - y); 1 for equal infinities."""
    same = F.equal(x, y)
    return F.where(same, 1, F.exp(F.where(same, 0, x) - F.where(same, 0, y)))


@register
class LinearScan(LibraryOp):
    """out[i] = a[i] * out[i-1] + b[i] along axis, from out[-1] = 0; in reverse, out[i] = a[i] * out[i+1] + b[i]."""

    name = "linear_scan"
    batching = "axis"
    takes_complex = True
    routine = "linear_scan"
    axis: int
    reverse: bool = False
    takes = "T[*s] T[*s]"

    def infer(self, a: Type, b: Type) -> Type:
        return b

    def attributes(self, a, b):
        return (self.axis, int(self.reverse)), ()

    def grad(self, g, a, b, *, out):
        by_b = LinearScan(self.axis, not self.reverse)(_shifted(a, self.axis, not self.reverse, 1), g)
        return by_b * _shifted(out, self.axis, self.reverse, 0), by_b


def _shifted(x: Value, axis: int, reverse: bool, first) -> Value:
    """x moved one place along axis, away from where the scan starts; `first` comes in there."""
    if x.ndim == 0:
        return full_expand(constant(first, x.dtype), ())
    n = x.shape[axis]
    if n == 0:
        return x
    place = 0 if not reverse else n - 1
    if n == 1:
        return full_expand(constant(first, x.dtype), x.shape)
    kept = F.slice_axis(x, axis, 1 if reverse else 0, n - 1)
    return _embedded(kept, axis, 0 if reverse else 1, n, place, first)


def _embedded(x: Value, axis: int, start, size, place, fill) -> Value:
    """x put at `start` of an axis of the given size, with `fill` at `place`, the one position left."""
    starts = tuple(start if a == axis else 0 for a in range(x.ndim))
    out = F.Embed(starts, (1,) * x.ndim, (*x.shape[:axis], size, *x.shape[axis + 1 :]))(x)
    if fill == 0:
        return out
    here = F.Equal()(F.Iota(out.shape, axis, dtypes.int64)(), constant(place, dtypes.int64))
    return F.Where()(here, constant(fill, x.dtype), out)


def exclusive_product(x: Value, reverse: bool = False) -> Value:
    """Product of all elements before each along the last axis (after each, in reverse)."""
    axis = max(x.ndim - 1, 0)
    return _shifted(Cumulative(axis, "prod", reverse)(x), axis, reverse, 1)


def _scan(name: str, kind: str, x, axis, dtype) -> Value:
    x = as_value(x)
    if axis is None:
        x = F.Reshape((x.type.numel,))(x)
        axis = 0
    axis = normalize_axis(name, axis, x.ndim)
    x = cast(x, dtypes.as_dtype(dtype) if dtype is not None else sum_dtype(x.dtype))
    if kind == "prod":  # its gradient multiplies results, which must not have been rounded to 16 bits
        return cast(Cumulative(axis, kind)(widen(x)), x.dtype)
    return Cumulative(axis, kind)(x)


@op
def cumsum(x: Tensor, axis=None, *, dtype=None):
    """Running sum along an axis; without one, of the flattened tensor. Integers add up in 64 bits.

    >>> td.cumsum(td.tensor([1, 2, 3]), 0)
    tensor([1, 3, 6])
    """
    return _scan("cumsum", "sum", x, axis, dtype)


@op
def cumprod(x: Tensor, axis=None, *, dtype=None):
    """Running product along an axis; without one, of the flattened tensor. Integers multiply in 64 bits.

    >>> td.cumprod(td.tensor([1, 2, 3]), 0)
    tensor([1, 2, 6])
    """
    return _scan("cumprod", "prod", x, axis, dtype)


def _standard(name: str, kind: str, x, axis, dtype, include_initial: bool) -> Value:
    """The Array API's form: axis may be left out for 1-d tensors only, and the start of the scan may be included."""
    x = as_value(x)
    if axis is None:
        if x.ndim > 1:
            raise ShapeError(name, f"x has {x.ndim} axes, so axis must be given")
        axis = 0
    axis = normalize_axis(name, axis, x.ndim)
    out = _scan(name, kind, x, axis, dtype)
    if not include_initial:
        return out
    return _embedded(out, axis, 1, out.shape[axis] + 1, 0, 0 if kind == "sum" else 1)


@op
def cumulative_sum(x: Tensor, *, axis=None, dtype=None, include_initial=False):
    """Running sum along an axis; include_initial puts the 0 in front that it starts from.

    >>> td.cumulative_sum(td.tensor([1, 2, 3]), include_initial=True)
    tensor([0, 1, 3, 6])
    """
    return _standard("cumulative_sum", "sum", x, axis, dtype, include_initial)


@op
def cumulative_prod(x: Tensor, *, axis=None, dtype=None, include_initial=False):
    """Running product along an axis; include_initial puts the 1 in front that it starts from.

    >>> td.cumulative_prod(td.tensor([1, 2, 3]))
    tensor([1, 2, 6])
    """
    return _standard("cumulative_prod", "prod", x, axis, dtype, include_initial)


class Running(NamedTuple):
    """What cummax and cummin give."""

    values: object
    indices: object


@register
class RunningExtremum(LibraryOp):
    """(values, int64 positions) of the largest (smallest) element so far along axis; of equal ones the latest. NaN stays."""

    name = "running_extremum"
    batching = "axis"
    routine = "running_extremum"
    axis: int
    smallest: bool
    takes = "?[*s]"

    def infer(self, x: Type) -> tuple[Type, Type]:
        return x, x.with_dtype(dtypes.int64)

    def attributes(self, x):
        return (self.axis, int(self.smallest)), ()

    def grad(self, g, x, *, out):
        index = out[1]
        indices = [index if a == self.axis else F.Iota(index.shape, a, dtypes.int64)() for a in range(x.ndim)]
        return F.Scatter("add")(F.zeros_like(x), g[0], *indices)


def _running_extremum(name: str, smallest: bool, x, axis):
    axis = normalize_axis(name, axis, x.ndim)
    x = as_value(x)
    if not x.ndim:
        return F.Copy()(x), F.full((), 0, dtype=dtypes.int64)
    return RunningExtremum(axis, smallest)(x)


@op(name="cummax", hidden=True)
def _cummax(x: Tensor, axis):
    return _running_extremum("cummax", False, x, axis)


@op(name="cummin", hidden=True)
def _cummin(x: Tensor, axis):
    return _running_extremum("cummin", True, x, axis)


@public(method=True)
def cummax(x: Tensor, axis=-1):
    """(values, indices) of the largest element so far along an axis; NaN stays.

    >>> td.cummax(td.tensor([1, 3, 2]), 0).values
    tensor([1, 3, 3])
    """
    return Running(*_cummax(x, axis))


@public(method=True)
def cummin(x: Tensor, axis=-1):
    """(values, indices) of the smallest element so far along an axis; NaN stays.

    >>> td.cummin(td.tensor([3, 1, 2]), 0).values
    tensor([3, 1, 1])
    """
    return Running(*_cummin(x, axis))


@op
@in_float32
def logcumsumexp(x: Tensor, axis):
    """log of the running sum of exp along an axis, without overflow.

    >>> td.logcumsumexp(td.tensor([0.0, 0.0, 1000.0]), 0)
    tensor([   0.0000,    0.6931, 1000.0000])
    """
    x = to_float(x)
    axis = normalize_axis("logcumsumexp", axis, x.ndim)
    if x.dtype.is_complex:
        # The sizes are those of the real case; what is left to add up has sizes of at most 1.
        size = F.stop_gradient(F.logcumsumexp(F.real(x), axis))
        size = F.where(F.isfinite(size), size, 0)
        before = _shifted(size, axis, False, float("-inf"))
        terms = F.exp(x - size)
        return F.log(LinearScan(axis, False)(F.astype(F.exp(before - size), x.dtype), terms)) + size
    return Cumulative(axis, "logsum")(x)


for function in (cumsum, cumprod):
    inplace(function)
