"""Loss functions. `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ShapeError, ValueRangeError, warn
from tandem.graph.ir import Type, Value
from tandem.ops.define import Composite, op, public, register
from tandem.ops.index import known_shares
from tandem.ops.precision import in_float32, round_loss, wide_dtype, widen
from tandem.ops.prepare import broadcast_shapes, cast, constant, promote, show, show_shape, to_float


def reduce_loss(name: str, loss: Value, reduction: str) -> Value:
    if reduction == "none":
        return loss
    if reduction == "mean":
        return F.mean(loss)
    if reduction == "sum":
        return F.sum(loss)
    raise ValueRangeError(name, f"reduction is {reduction!r}; it must be 'mean', 'sum' or 'none'")


def _pair(name: str, input: Value, target: Value) -> tuple[Value, Value]:
    """Both in one floating dtype, broadcast against each other."""
    input, target = promote(to_float(input), to_float(target))
    shape = broadcast_shapes(name, input.shape, target.shape)
    return F.expand(input, shape), F.expand(target, shape)


def _same_shape_pair(name: str, input: Value, target: Value) -> tuple[Value, Value]:
    if input.ndim != target.ndim or any(a != b for a, b in zip(input.shape, target.shape, strict=True)):
        raise ShapeError(
            name,
            f"input is {show_shape(input.shape)} and target is {show_shape(target.shape)}; they must have the same shape",
            fix="for instance target.reshape(input.shape)",
        )
    return _pair(name, input, target)


def _weighted_mean(name: str, loss: Value, weight: Value | None, reduction: str) -> Value:
    if weight is None:
        return reduce_loss(name, loss, reduction)
    if weight.ndim != loss.ndim or any(a != b for a, b in zip(weight.shape, loss.shape, strict=True)):
        raise ShapeError(
            name, f"weight is {show_shape(weight.shape)} and must be {show_shape(loss.shape)} as the input"
        )
    if reduction == "mean":
        return F.sum(loss * weight) / F.sum(weight)
    return reduce_loss(name, loss * weight, reduction)


# -- classes


def _class_axis(name: str, input: Value) -> int:
    if input.ndim == 0:
        raise ShapeError(name, "input is 0-d; it needs an axis of classes: (C), (N, C) or (N, C, ...)")
    return 0 if input.ndim == 1 else 1


def _class_weights(name: str, weight: Value | None, classes) -> Value | None:
    if weight is not None and (weight.ndim != 1 or weight.shape[0] != classes):
        raise ShapeError(
            name,
            f"weight is {show_shape(weight.shape)} and must have one element for each of the {show(classes)} classes",
        )
    return weight


class _Targets:
    """Class indices of the target, checked, with the class axis at size 1; what is ignored points to class 0 with weight 0."""

    def __init__(self, name: str, input: Value, target: Value, weight: Value | None, ignore_index: int):
        axis = _class_axis(name, input)
        if not target.dtype.is_integer:
            raise DTypeError(
                name, f"target is {target.dtype}; class indices must be integers", fix="convert it: target.to(td.int64)"
            )
        expected = input.shape[:axis] + input.shape[axis + 1 :]
        if target.ndim != len(expected) or any(a != b for a, b in zip(target.shape, expected, strict=True)):
            raise ShapeError(
                name,
                f"input is {show_shape(input.shape)}, so class indices must be {show_shape(expected)}; "
                f"target is {show_shape(target.shape)}",
            )
        target = F.unsqueeze(cast(target, dtypes.int64), axis)
        kept = F.not_equal(target, ignore_index)
        index = F.where(kept, target, constant(0, dtypes.int64))
        self.index = F.CheckIndex(input.shape[axis], axis, False)(index)
        factor = cast(kept, wide_dtype(input.dtype))
        weight = _class_weights(name, weight, input.shape[axis])
        if weight is not None:
            factor = factor * cast(F.Gather()(weight, self.index), factor.dtype)
        self.axis, self.kept, self.factor = axis, kept, factor

    def reduce(self, name: str, loss: Value, reduction: str) -> Value:
        """loss with the class axis at size 1; the mean is over the weights."""
        if reduction == "mean":
            # before the sum of losses, which need it not: gradients may begin with it
            weights = F.sum(cast(self.factor, loss.dtype))
            return F.sum(loss) / weights
        return reduce_loss(name, F.squeeze(loss, self.axis), reduction)


@op(method=False)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index=-100,
    reduction="mean",
    label_smoothing=0.0,
):
    """Cross entropy between softmax(input) along the class axis and the target, without computing the softmax.

    input: (C), (N, C) or (N, C, *s) logits; target: class indices () or (N) or (N, *s), or probabilities shaped like input.
    weight: (C), per class. Targets equal to ignore_index do not count. label_smoothing: this much of each target is spread evenly.

    >>> td.cross_entropy(td.tensor([[1.0, 2.0, 3.0]]), td.tensor([2]))
    tensor(0.4076)
    """
    name = "cross_entropy"
    if input.dtype.is_integer and target.dtype.is_floating:
        raise DTypeError(
            "cross_entropy",
            f"input is {input.dtype} {show_shape(input.shape)} and target {target.dtype} {show_shape(target.shape)}; scores are "
            "floating, classes are integers",
            fix="the arguments seem to be swapped: cross_entropy(scores, classes)",
        )
    x = to_float(input)
    axis = _class_axis(name, x)
    classes = x.shape[axis]
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueRangeError(name, f"label_smoothing is {label_smoothing}; it must be between 0 and 1")
    if target.dtype.is_inexact and target.ndim == x.ndim:
        loss = _soft_cross_entropy(widen(x), target, weight, axis, reduction, label_smoothing)
        return round_loss(loss, x.dtype)
    targets = _Targets(name, x, target, weight, ignore_index)
    # One element of a row is picked before it is widened, so that the widened row need not be in memory.
    picked = widen(F.Pick(axis)(x, targets.index))
    dtype, x = x.dtype, widen(x)
    total = F.LogSumExp((axis,))(x)
    loss = (total - picked) * cast(targets.factor, x.dtype)
    if label_smoothing:
        if weight is None:
            every = total * constant(classes, x.dtype) - F.sum(x, axis, keepdims=True)
        else:
            w = _along_axis(cast(weight, x.dtype), axis, x.ndim)
            every = F.sum(w * (total - x), axis, keepdims=True)
        every = every * cast(targets.kept, x.dtype) / constant(classes, x.dtype)
        loss = loss * (1.0 - label_smoothing) + every * label_smoothing
    # An ignored row may hold infinities: 0 * inf is no loss.
    loss = F.where(targets.kept, loss, constant(0, x.dtype))
    return round_loss(targets.reduce(name, loss, reduction), dtype)


def _along_axis(v: Value, axis: int, ndim: int) -> Value:
    return F.reshape(v, (1,) * axis + v.shape + (1,) * (ndim - axis - 1))


def _soft_cross_entropy(x: Value, target: Value, weight, axis: int, reduction: str, label_smoothing: float) -> Value:
    name = "cross_entropy"
    if any(a != b for a, b in zip(target.shape, x.shape, strict=True)):
        raise ShapeError(
            name,
            f"target probabilities are {show_shape(target.shape)} and must be shaped like input, {show_shape(x.shape)}",
        )
    classes = x.shape[axis]
    target = cast(target, x.dtype)
    if label_smoothing:
        target = target * (1.0 - label_smoothing) + label_smoothing / constant(classes, x.dtype)
    weight = _class_weights(name, weight, classes)
    if weight is not None:
        target = target * _along_axis(cast(weight, x.dtype), axis, x.ndim)
    loss = F.sum(target * (F.LogSumExp((axis,))(x) - x), axis)
    return reduce_loss(name, loss, reduction)


@op(method=False)
def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index=-100, reduction="mean"):
    """Negative log likelihood: -input[n, target[n]], averaged with the classes' weights.

    input: (C), (N, C) or (N, C, *s) log-probabilities; target: class indices () or (N) or (N, *s)

    >>> td.nll_loss(td.tensor([[-1.0, -0.5]]), td.tensor([1]))
    tensor(0.5000)
    """
    x = to_float(input)
    targets = _Targets("nll_loss", x, target, weight, ignore_index)
    picked = widen(F.Pick(targets.axis)(x, targets.index))
    loss = F.where(targets.kept, -picked * cast(targets.factor, picked.dtype), constant(0, picked.dtype))
    return round_loss(targets.reduce("nll_loss", loss, reduction), x.dtype)


# -- regression


@op(name="mse_loss", hidden=True)
@in_float32(loss=True)
def _mse_loss(input: Tensor, target: Tensor, *, reduction="mean", weight: Tensor | None = None):
    input, target = _pair("mse_loss", input, target)
    difference = input - target
    return _weighted_mean("mse_loss", difference * difference, weight, reduction)


@op(name="l1_loss", hidden=True)
@in_float32(loss=True)
def _l1_loss(input: Tensor, target: Tensor, *, reduction="mean", weight: Tensor | None = None):
    input, target = _pair("l1_loss", input, target)
    return _weighted_mean("l1_loss", F.abs(input - target), weight, reduction)


@op(name="smooth_l1_loss", hidden=True)
@in_float32(loss=True)
def _smooth_l1_loss(input: Tensor, target: Tensor, *, reduction="mean", beta=1.0):
    if beta < 0:
        raise ValueRangeError("smooth_l1_loss", f"beta is {beta} and must not be negative")
    if beta == 0:
        return _l1_loss(input, target, reduction=reduction)
    input, target = _pair("smooth_l1_loss", input, target)
    d = input - target
    size = F.abs(d)
    return reduce_loss("smooth_l1_loss", F.where(size < beta, d * d * (0.5 / beta), size - 0.5 * beta), reduction)


@op(name="huber_loss", hidden=True)
@in_float32(loss=True)
def _huber_loss(input: Tensor, target: Tensor, *, reduction="mean", delta=1.0, weight: Tensor | None = None):
    if delta <= 0:
        raise ValueRangeError("huber_loss", f"delta is {delta} and must be positive")
    input, target = _pair("huber_loss", input, target)
    d = input - target
    size = F.abs(d)
    loss = F.where(size < delta, d * d * 0.5, (size - 0.5 * delta) * delta)
    return _weighted("huber_loss", loss, weight, reduction)


def old_reduction(size_average, reduce, reduction: str) -> str:
    """PyTorch's arguments before there was `reduction`, as it."""
    if size_average is None and reduce is None:
        return reduction
    return "none" if reduce is False else "sum" if size_average is False else "mean"


def _warn_of_broadcast(name: str, input, target):
    if tuple(input.shape) != tuple(target.shape):
        warn(
            f"{name}: input is {show_shape(input.shape)} and target is {show_shape(target.shape)}; they are broadcast against each "
            "other, which is rarely what is meant. Make their shapes equal, for instance by target.reshape(input.shape)",
            UserWarning,
        )


@public
def mse_loss(input: Tensor, target: Tensor, size_average=None, reduce=None, reduction="mean", weight=None):
    """Squared difference; with weight, times weight, and the mean is over weights.

    >>> td.mse_loss(td.tensor([1.0, 2.0]), td.tensor([1.0, 4.0]))
    tensor(2.)
    """
    _warn_of_broadcast("mse_loss", input, target)
    return _mse_loss(input, target, reduction=old_reduction(size_average, reduce, reduction), weight=weight)


@public
def l1_loss(input: Tensor, target: Tensor, size_average=None, reduce=None, reduction="mean", weight=None):
    """Absolute difference; with weight, times weight, and the mean is over weights.

    >>> td.l1_loss(td.tensor([1.0, 2.0]), td.tensor([1.0, 4.0]))
    tensor(1.)
    """
    _warn_of_broadcast("l1_loss", input, target)
    return _l1_loss(input, target, reduction=old_reduction(size_average, reduce, reduction), weight=weight)


@public
def smooth_l1_loss(input: Tensor, target: Tensor, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """0.5 * d * d / beta where |d| < beta, |d| - 0.5 * beta elsewhere, for d = input - target.

    >>> td.smooth_l1_loss(td.tensor([1.0, 2.0]), td.tensor([1.5, 4.0]), reduction="none")
    tensor([0.1250, 1.5000])
    """
    _warn_of_broadcast("smooth_l1_loss", input, target)
    return _smooth_l1_loss(input, target, reduction=old_reduction(size_average, reduce, reduction), beta=beta)


@public
def huber_loss(input: Tensor, target: Tensor, reduction="mean", delta=1.0, weight=None):
    """0.5 * d * d where |d| < delta, delta * (|d| - 0.5 * delta) elsewhere, for d = input - target.

    >>> td.huber_loss(td.tensor([1.0, 2.0]), td.tensor([1.5, 4.0]), reduction="none")
    tensor([0.1250, 1.5000])
    """
    _warn_of_broadcast("huber_loss", input, target)
    return _huber_loss(input, target, reduction=reduction, delta=delta, weight=weight)


# -- probabilities


def _weighted(name: str, loss: Value, weight: Value | None, reduction: str) -> Value:
    return reduce_loss(name, loss if weight is None else loss * weight, reduction)


@register
class CrossEntropyTerm(Composite):
    """-(t * log(x) + (1 - t) * log(1 - x)), with logarithms no lower than -100. Its gradient is finite where a probability is 0
    or 1, as sigmoid gives them; that of the formula is 0 / 0 there."""

    name = "cross_entropy_term"
    takes = "F[*s] F[*s]"

    def infer(self, x: Type, t: Type) -> Type:
        return x

    def expand(self, x: Value, t: Value) -> Value:
        return -(t * F.clip(F.log(x), -100.0) + (1 - t) * F.clip(F.log1p(-x), -100.0))

    def grad(self, g, x, t, *, out):
        by_target = F.clip(F.log1p(-x), -100.0) - F.clip(F.log(x), -100.0)
        return g * (x - t) / F.clip(x * (1 - x), 1e-12), g * by_target


@op(method=False)
@in_float32(loss=True)
def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction="mean"):
    """-(target * log(input) + (1 - target) * log(1 - input)), with logarithms no lower than -100.

    input: probabilities; target: the same shape; weight: broadcasts

    >>> td.binary_cross_entropy(td.tensor([0.5, 0.9]), td.tensor([1.0, 1.0]))
    tensor(0.3993)
    """
    x, t = _same_shape_pair("binary_cross_entropy", input, target)
    return _weighted("binary_cross_entropy", CrossEntropyTerm()(known_shares(x), known_shares(t)), weight, reduction)


@op(method=False)
@in_float32(loss=True)
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction="mean", pos_weight: Tensor | None = None
):
    """binary_cross_entropy(sigmoid(input), target) without overflow or loss of digits. pos_weight: a factor for positive targets.

    >>> td.binary_cross_entropy_with_logits(td.tensor([0.0, 100.0]), td.tensor([1.0, 1.0]))
    tensor(0.3466)
    """
    x, t = _same_shape_pair("binary_cross_entropy_with_logits", input, target)
    positive = 1 if pos_weight is None else (pos_weight - 1) * t + 1
    loss = (1 - t) * x + positive * F.softplus(-x)
    return _weighted("binary_cross_entropy_with_logits", loss, weight, reduction)


@op(method=False)
@in_float32(loss=True)
def kl_div(input: Tensor, target: Tensor, *, reduction="mean", log_target=False):
    """Kullback-Leibler divergence target * (log(target) - input). input: log-probabilities; target: probabilities, or their
    logarithms with log_target. reduction may also be "batchmean": the sum over the size of axis 0.

    >>> td.kl_div(td.log(td.tensor([0.5, 0.5])), td.tensor([1.0, 0.0]), reduction="sum")
    tensor(0.6931)
    """
    x, t = _pair("kl_div", input, target)
    if log_target:
        loss = F.exp(t) * (t - x)
    else:
        some = F.not_equal(t, 0)
        # 0 * log(0) counts as 0, for the gradient too; what is negative is no probability, and its logarithm NaN
        loss = F.where(some, t * F.log(F.where(some, t, constant(1, t.dtype))), constant(0, t.dtype)) - t * x
    if reduction == "batchmean":
        return F.sum(loss) / constant(x.shape[0] if x.ndim else 1, x.dtype)
    return reduce_loss("kl_div", loss, reduction)
