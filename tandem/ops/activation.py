"""Activation functions. All are elementwise but glu, so each is one kernel forward and one backward."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem.errors import ShapeError, ValueRangeError
from tandem.graph.ir import Type, Value
from tandem.ops.define import Composite, Elementwise, ends_inplace, inplace, op, register
from tandem.ops.movement import take_slice
from tandem.ops.precision import in_float32
from tandem.ops.prepare import assigned, constant, normalize_axis, show, show_shape, to_float, with_weights

# So that activations of independent, standardised inputs stay standardised (Klambauer et al., 2017).
SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


def _select(condition: Value, x, y, like: Value) -> Value:
    """where with Python numbers in like's dtype."""
    return F.where(condition, *(v if isinstance(v, Value) else constant(v, like.dtype) for v in (x, y)))


# -- limited linear pieces


@op
def relu6(x: Tensor):
    """min(max(x, 0), 6).

    >>> td.relu6(td.tensor([-1.0, 3.0, 8.0]))
    tensor([0., 3., 6.])
    """
    return F.hardtanh(x, 0.0, 6.0)


@op
def hardtanh(x: Tensor, min_val=-1.0, max_val=1.0):
    """x limited to [min_val, max_val]; the gradient is 0 at and beyond the limits.

    >>> td.hardtanh(td.tensor([-2.0, 0.5, 2.0]))
    tensor([-1.0000,  0.5000,  1.0000])
    """
    if min_val > max_val:
        raise ValueRangeError("hardtanh", f"min_val {min_val} is larger than max_val {max_val}")
    low, high = constant(min_val, x.dtype), constant(max_val, x.dtype)
    return F.where(x <= low, low, F.where(x >= high, high, x))


@op
@in_float32
def leaky_relu(x: Tensor, negative_slope=0.01):
    """x where positive, negative_slope * x elsewhere.

    >>> td.leaky_relu(td.tensor([-1.0, 2.0]), 0.1)
    tensor([-0.1000,  2.0000])
    """
    x = to_float(x)
    return F.where(x > 0, x, x * negative_slope)


@op
def prelu(x: Tensor, weight: Tensor):
    """x where positive, weight * x elsewhere. weight: one number, or one for each channel (axis 1).

    x: (N, C, *s); weight: (1) or (C) -> shape of x

    >>> td.prelu(td.tensor([[-1.0, -1.0]]), td.tensor([0.1, 0.2]))
    tensor([[-0.1000, -0.2000]])
    """
    x, weight = with_weights("prelu", x, weight)
    if weight.ndim == 1 and weight.shape[0] == 1:
        weight = F.Reshape(())(weight)
    elif weight.ndim == 1:
        channels = x.shape[1] if x.ndim > 1 else 1
        if weight.shape[0] != channels:
            raise ShapeError(
                "prelu",
                f"weight has {show(weight.shape[0])} elements and x {show_shape(x.shape)}: it must have 1 or as many as channels",
            )
        weight = F.Reshape((1, channels) + (1,) * (x.ndim - 2))(weight)
    elif weight.ndim > 1:
        raise ShapeError("prelu", f"weight is {show_shape(weight.shape)} and must be 0-d or 1-d")
    return F.where(x > 0, x, x * weight)


@op
def hardsigmoid(x: Tensor):
    """min(max(x + 3, 0), 6) / 6.

    >>> td.hardsigmoid(td.tensor([-3.0, 0.0, 3.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    return F.hardtanh(to_float(x) + 3.0, 0.0, 6.0) / 6.0


@op
def hardswish(x: Tensor):
    """x * min(max(x + 3, 0), 6) / 6.

    >>> td.hardswish(td.tensor([-1.0, 0.0, 3.0]))
    tensor([-0.3333,  0.0000,  3.0000])
    """
    x = to_float(x)
    return x * F.hardsigmoid(x)


@op
def threshold(x: Tensor, threshold, value):
    """x where larger than threshold, value elsewhere.

    >>> td.threshold(td.tensor([0.5, 2.0]), 1.0, -1.0)
    tensor([-1.,  2.])
    """
    return F.where(x <= threshold, assigned("threshold", value, x.dtype), x)  # NaN stays


@op
def hardshrink(x: Tensor, lambd=0.5):
    """x where |x| > lambd, 0 elsewhere.

    >>> td.hardshrink(td.tensor([-1.0, 0.2, 1.0]))
    tensor([-1.,  0.,  1.])
    """
    return _select(F.abs(x) <= lambd, 0, x, x)


@op
def softshrink(x: Tensor, lambd=0.5):
    """x moved towards 0 by lambd, and 0 where |x| <= lambd.

    >>> td.softshrink(td.tensor([-1.0, 0.2, 1.0]))
    tensor([-0.5000,  0.0000,  0.5000])
    """
    if lambd < 0:
        raise ValueRangeError("softshrink", f"lambd is {lambd} and must not be negative")
    x = to_float(x)
    return _select(x > lambd, x - lambd, _select(x < -lambd, x + lambd, x * 0, x), x)


# -- exponentials


@op
def elu(x: Tensor, alpha=1.0):
    """x where positive, alpha * (exp(x) - 1) elsewhere.

    >>> td.elu(td.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """
    return _exponential_unit(x, alpha, 1.0, 1.0)


@op
def celu(x: Tensor, alpha=1.0):
    """x where positive, alpha * (exp(x / alpha) - 1) elsewhere.

    >>> td.celu(td.tensor([-1.0, 2.0]), 2.0)
    tensor([-0.7869,  2.0000])
    """
    if alpha == 0:
        raise ValueRangeError("celu", "alpha is 0")
    return _exponential_unit(x, alpha, 1.0, 1.0 / alpha)


@op
def selu(x: Tensor):
    """1.0507 * elu(x, 1.6733): activations stay standardised.

    >>> td.selu(td.tensor([-1.0, 2.0]))
    tensor([-1.1113,  2.1014])
    """
    return _exponential_unit(x, SELU_ALPHA * SELU_SCALE, SELU_SCALE, 1.0)


def _exponential_unit(x: Value, alpha: float, scale: float, inner: float) -> Value:
    x = to_float(x)
    # exp of the negative part only: a large positive x would overflow, and inf * 0 spoil the gradient. Not by minimum, which
    # gives either operand half of the gradient where they are equal.
    negative = F.where(x > 0, constant(0, x.dtype), x) * inner
    return F.where(x > 0, x * scale, F.expm1(negative) * alpha)


@register
class Softplus(Elementwise):
    """log(1 + exp(x)), as max(x, 0) + log1p(exp(-|x|)), which does not overflow."""

    name = "softplus"

    def body(self, b, x):
        return b.softplus(x)

    def grad(self, g, x):
        return g * F.sigmoid(x)


@op
def softplus(x: Tensor, beta=1.0, threshold=20.0):
    """A smooth max(x, 0): log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold.

    >>> td.softplus(td.tensor([-1.0, 0.0, 1.0]))
    tensor([0.3133, 0.6931, 1.3133])
    """
    x = to_float(x)
    scaled = x if beta == 1 else x * beta
    smooth = Softplus()(scaled)
    return F.where(scaled > threshold, x, smooth if beta == 1 else smooth / beta)


@op
def logsigmoid(x: Tensor):
    """log(sigmoid(x)), without overflow.

    >>> td.logsigmoid(td.tensor([-1.0, 0.0]))
    tensor([-1.3133, -0.6931])
    """
    return -Softplus()(-to_float(x))


@op
def gelu(x: Tensor, approximate="none"):
    """x * P(X < x) for a normal X; approximate="tanh" computes it by a tanh.

    >>> td.gelu(td.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """
    x = to_float(x)
    if approximate == "tanh":
        inner = x * (math.sqrt(2 / math.pi) + x * x * (math.sqrt(2 / math.pi) * 0.044715))
        return x * 0.5 * (F.tanh(inner) + 1)
    if approximate != "none":
        raise ValueRangeError("gelu", f"approximate is {approximate!r}; it must be 'none' or 'tanh'")
    return Gelu()(x)


@register
class Gelu(Composite):
    """x * P(X < x). Its gradient is a product with the derivative, which a program may compute where it has x."""

    name = "gelu"
    takes = "F[*s]"

    def infer(self, x: Type) -> Type:
        return x

    def expand(self, x: Value) -> Value:
        return x * 0.5 * _twice_below(x)

    def grad(self, g, x, *, out):
        density = F.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
        return g * (_twice_below(x) * 0.5 + x * density)


def _twice_below(x: Value) -> Value:
    """2 P(X < x)."""
    return F.erf(x * math.sqrt(0.5)) + 1


@op
def silu(x: Tensor):
    """x * sigmoid(x).

    >>> td.silu(td.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2689,  0.0000,  0.7311])
    """
    x = to_float(x)
    return x * F.sigmoid(x)


@op
def mish(x: Tensor):
    """x * tanh(softplus(x)).

    >>> td.mish(td.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.3034,  0.0000,  0.8651])
    """
    x = to_float(x)
    return x * F.tanh(Softplus()(x))


@op
def softsign(x: Tensor):
    """x / (1 + |x|).

    >>> td.softsign(td.tensor([-1.0, 3.0]))
    tensor([-0.5000,  0.7500])
    """
    x = to_float(x)
    return x / (F.abs(x) + 1)


@op
def tanhshrink(x: Tensor):
    """x - tanh(x).

    >>> td.tanhshrink(td.tensor([0.0, 1.0]))
    tensor([0.0000, 0.2384])
    """
    x = to_float(x)
    return x - F.tanh(x)


@op
def glu(x: Tensor, axis=-1):
    """The first half of an axis times the sigmoid of the second half.

    x: (*a, 2n, *b) -> (*a, n, *b)

    >>> td.glu(td.tensor([1.0, 2.0, 0.0, 0.0]))
    tensor([0.5000, 1.0000])
    """
    x = to_float(x)
    axis = normalize_axis("glu", axis, x.ndim)
    if x.ndim == 0 or x.shape[axis] % 2 != 0:
        raise ShapeError("glu", f"x is {show_shape(x.shape)}; the size of axis {axis} must be even")
    half = x.shape[axis] // 2
    return take_slice(x, {axis: (0, 1, half)}) * F.sigmoid(take_slice(x, {axis: (half, 1, half)}))


for function in (relu6, hardtanh, leaky_relu, elu, celu, selu, threshold, hardsigmoid, hardswish, silu, mish):
    inplace(function)
    ends_inplace(function)
