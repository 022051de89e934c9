"""softmax and its relatives: each one kernel forward and one backward, from the output alone."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.graph.ir import Type, Value
from tandem.ops.define import Composite, op, register
from tandem.ops.precision import NARROW, widen
from tandem.ops.prepare import cast, constant, full_expand, normalize_axis, to_float


def _largest(x: Value, axes: tuple[int, ...]) -> Value:
    """The maximum to subtract before exp. Infinite ones are left out: inf - inf has no value, exp(inf) does."""
    top = F.Reduce("max", axes)(x)
    return F.Where()(F.Less()(F.Abs()(top), constant(float("inf"), x.dtype)), top, constant(0, x.dtype))


@register
class Softmax(Composite):
    """exp(x) / sum(exp(x)) along one axis."""

    name = "softmax"
    batching = "axis"
    axis: int
    takes = "F[*s]"

    def infer(self, x: Type) -> Type:
        return Type(x.dtype, x.shape)

    def expand(self, x):
        wide = widen(x)
        top = F.Reduce("max", (self.axis,))(wide)
        e = F.Exp()(wide - full_expand(top, x.shape))
        return cast(e / full_expand(F.Reduce("sum", (self.axis,))(e), x.shape), x.dtype)

    def grad(self, g, x, *, out):
        out = widen(out)
        weighted = widen(g) * out
        return cast(weighted - out * full_expand(F.Reduce("sum", (self.axis,))(weighted), x.shape), x.dtype)


@register
class LogSoftmax(Composite):
    """x - log(sum(exp(x))) along one axis."""

    name = "log_softmax"
    batching = "axis"
    axis: int
    takes = "F[*s]"

    def infer(self, x: Type) -> Type:
        return Type(x.dtype, x.shape)

    def expand(self, x):
        wide = widen(x)
        shifted = wide - full_expand(F.Reduce("max", (self.axis,))(wide), x.shape)
        total = F.Log()(F.Reduce("sum", (self.axis,))(F.Exp()(shifted)))
        return cast(shifted - full_expand(total, x.shape), x.dtype)

    def grad(self, g, x, *, out):
        if x.dtype in NARROW:  # a logarithm of 16 bits has no digits left for its exp
            g, share = widen(g), Softmax(self.axis)(widen(x))
        else:
            share = F.Exp()(out)
        return cast(g - share * full_expand(F.Reduce("sum", (self.axis,))(g), x.shape), x.dtype)


@register
class LogSumExp(Composite):
    """log(sum(exp(x))) over axes, which stay with size 1."""

    name = "log_sum_exp"
    batching = "axes"
    axes: tuple
    takes = "F[*s]"

    def infer(self, x: Type) -> Type:
        return Type(x.dtype, tuple(1 if i in self.axes else d for i, d in enumerate(x.shape)))

    def expand(self, x):
        top = _largest(x, self.axes)
        return top + F.Log()(F.Reduce("sum", self.axes)(F.Exp()(x - full_expand(top, x.shape))))

    def grad(self, g, x, *, out):
        # Where the sum is 0 (all -inf) x - out has no value; nothing flows there.
        share = F.Exp()(
            x
            - full_expand(
                F.Where()(F.Equal()(out, constant(float("-inf"), x.dtype)), constant(0, x.dtype), out), x.shape
            )
        )
        return full_expand(g, x.shape) * share


def _row_function(name: str, primitive, x: Value, axis: int, dtype) -> Value:
    x = cast(x, dtypes.as_dtype(dtype)) if dtype is not None else to_float(x)
    axis = normalize_axis(name, axis, x.ndim)
    if x.ndim == 0:
        return F.Reshape(())(primitive(0)(F.Reshape((1,))(x)))
    if x.shape[axis] == 0:
        return F.Copy()(x)
    return primitive(axis)(x)


@op
def softmax(x: Tensor, axis=-1, dtype=None):
    """exp(x) / sum(exp(x)) along an axis, without overflow. dtype: what to convert x to first.

    x: (*s) float -> (*s)

    >>> td.softmax(td.tensor([0.0, 1.0, 2.0]))
    tensor([0.0900, 0.2447, 0.6652])
    """
    return _row_function("softmax", Softmax, x, axis, dtype)


@op
def log_softmax(x: Tensor, axis=-1, dtype=None):
    """log(softmax(x)) along an axis, computed without losing digits. dtype: what to convert x to first.

    x: (*s) float -> (*s)

    >>> td.log_softmax(td.tensor([0.0, 1.0, 2.0]))
    tensor([-2.4076, -1.4076, -0.4076])
    """
    return _row_function("log_softmax", LogSoftmax, x, axis, dtype)


@op
def softmin(x: Tensor, axis=-1, dtype=None):
    """softmax(-x): the smallest element gets the most.

    x: (*s) float -> (*s)

    >>> td.softmin(td.tensor([0.0, 1.0, 2.0]))
    tensor([0.6652, 0.2447, 0.0900])
    """
    return _row_function("softmin", Softmax, -x, axis, dtype)
