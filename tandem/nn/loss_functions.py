"""Loss functions made of others. `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError, ValueRangeError
from tandem.ops.define import op
from tandem.ops.loss import reduce_loss
from tandem.ops.precision import in_float32, round_loss, widen
from tandem.ops.prepare import broadcast_shapes, show_shape
from tandem.tensors.constructors import asarray


def _hinge(x):
    """max(x, 0), with a gradient where x is 0 too, unlike relu: two equal scores are pushed apart, as in PyTorch."""
    return F.clip(x, 0.0)


@op(hidden=True)
@in_float32(loss=True)
def poisson_nll_loss(input: Tensor, target: Tensor, log_input=True, full=False, *, eps=1e-8, reduction="mean"):
    """Negative log likelihood of Poisson-distributed targets, whose rate (or its logarithm) is input.

    full: with Stirling's approximation of the term that only targets are in.
    """
    loss = F.exp(input) - target * input if log_input else input - target * F.log(input + eps)
    if full:
        stirling = (
            target * F.log(F.maximum(target, 1e-30)) - target + 0.5 * F.log(2 * math.pi * F.maximum(target, 1e-30))
        )
        loss = loss + F.where(F.greater(target, 1), stirling, 0)
    return reduce_loss("poisson_nll_loss", loss, reduction)


@op(hidden=True)
@in_float32(loss=True)
def gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor, full=False, eps=1e-6, reduction="mean"):
    """Negative log likelihood of targets with mean input and variance var, which counts as eps where it is smaller."""
    if isinstance(var, (int, float)):
        var = F.full_like(input, var)
    elif var.ndim == input.ndim - 1:
        var = F.unsqueeze(var, -1)
    var = var + F.stop_gradient(F.maximum(var, eps) - var)  # the limit takes no gradient
    loss = 0.5 * (F.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduce_loss("gaussian_nll_loss", loss, reduction)


@op(hidden=True)
@in_float32(loss=True)
def hinge_embedding_loss(input: Tensor, target: Tensor, margin=1.0, *, reduction="mean"):
    """input where target is 1, max(0, margin - input) where it is -1."""
    near = F.where(F.equal(target, -1), 0, input)
    far = F.where(F.equal(target, 1), 0, _hinge(margin - input))
    return reduce_loss("hinge_embedding_loss", near + far, reduction)


@op(hidden=True)
@in_float32(loss=True)
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin=0.0, *, reduction="mean"):
    """max(0, -target * (input1 - input2) + margin): target 1 wants input1 larger, -1 input2."""
    return reduce_loss("margin_ranking_loss", _hinge(-target * (input1 - input2) + margin), reduction)


@op(hidden=True)
@in_float32(loss=True)
def soft_margin_loss(input: Tensor, target: Tensor, *, reduction="mean"):
    """log(1 + exp(-target * input)), for targets 1 and -1."""
    made = broadcast_shapes("soft_margin_loss", input.shape, target.shape)
    if len(made) != input.ndim or any(a != b for a, b in zip(made, input.shape, strict=True)):
        raise ShapeError(
            "soft_margin_loss",
            f"input is {show_shape(input.shape)} and target {show_shape(target.shape)}; target must spread to the input's shape",
        )
    return reduce_loss("soft_margin_loss", F.softplus(-target * input), reduction)


@op(hidden=True)
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin=0.0, *, reduction="mean"):
    """1 - cosine of the angle where target is 1, max(0, cosine - margin) where it is -1. inputs: (N, D) or (D)"""
    epsilon = 1e-12
    dtype = input1.dtype
    input1, input2 = widen(input1), widen(input2)
    cosine = F.sum(input1 * input2, -1) / F.sqrt(
        (F.sum(input1 * input1, -1) + epsilon) * (F.sum(input2 * input2, -1) + epsilon)
    )
    loss = F.where(F.equal(target, 1), 1 - cosine, 0) + F.where(F.equal(target, -1), _hinge(cosine - margin), 0)
    return round_loss(reduce_loss("cosine_embedding_loss", loss, reduction), dtype)


@op(hidden=True)
@in_float32(loss=True)
def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction="mean"):
    """Binary cross entropy of sigmoid(input) with several labels, the mean over classes. input, target: (N, C) or (C)"""
    loss = target * F.softplus(-input) + (1 - target) * F.softplus(input)
    if weight is not None:
        loss = loss * weight
    return reduce_loss("multilabel_soft_margin_loss", F.mean(loss, -1), reduction)


@op(hidden=True)
@in_float32(loss=True)
def multi_margin_loss(
    input: Tensor, target: Tensor, p=1, margin=1.0, weight: Tensor | None = None, *, reduction="mean"
):
    """Sum over the wrong classes of max(0, margin - input[target] + input[c]) ** p, over the number of classes.

    input: (N, C) or (C), target: (N) or () of class indices
    """
    if p not in (1, 2):
        raise ValueRangeError("multi_margin_loss", f"p is {p}; it must be 1 or 2")
    input = F.Reshape((1,))(input) if input.ndim == 0 else input
    if input.ndim == 1 and target.ndim == 1 and target.shape[0] == 1:
        target = F.Reshape(())(target)
    index = F.unsqueeze(target, -1)
    miss = F.relu(margin - F.take_along_axis(input, index, -1) + input)
    miss = miss * miss if p == 2 else miss
    if weight is not None:
        miss = miss * F.unsqueeze(F.take(weight, target, 0), -1)
    classes = F.Iota(input.shape, input.ndim - 1, dtypes.int64)()
    loss = F.sum(F.where(F.equal(classes, index), 0, miss), -1) / input.shape[-1]
    return reduce_loss("multi_margin_loss", loss, reduction)


@op(hidden=True)
@in_float32(loss=True)
def multilabel_margin_loss(input: Tensor, target: Tensor, *, reduction="mean"):
    """Sum over pairs of a target class and another one of max(0, 1 - input[target] + input[other]), over the number of classes.

    input: (N, C) or (C), target: the same shape, class indices of which those after the first -1 do not count
    """
    if input.ndim != target.ndim or any(a != b for a, b in zip(input.shape, target.shape, strict=True)):
        raise ShapeError(
            "multilabel_margin_loss", f"input is {show_shape(input.shape)} and target {show_shape(target.shape)}"
        )
    if input.ndim == 0:
        input, target = F.Reshape((1,))(input), F.Reshape((1,))(target)
    counts = F.equal(F.cumsum(F.astype(F.less(target, 0), dtypes.int64), -1), 0)
    index = F.where(counts, target, 0)
    is_target = F.scatter_add(F.full(input.shape, 0, dtype=dtypes.int64), -1, index, F.astype(counts, dtypes.int64))
    of_target = F.unsqueeze(F.take_along_axis(input, index, -1), -1)
    miss = F.relu(1 - of_target + F.unsqueeze(input, -2))
    pairs = F.logical_and(F.unsqueeze(counts, -1), F.unsqueeze(F.equal(is_target, 0), -2))
    loss = F.sum(F.where(pairs, miss, 0), (-2, -1)) / input.shape[-1]
    return reduce_loss("multilabel_margin_loss", loss, reduction)


@op(hidden=True)
@in_float32(loss=True)
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin=1.0, p=2, eps=1e-6, swap=False, *, reduction="mean"
):
    """max(0, distance to positive - distance to negative + margin). swap: also counts the distance between the two."""
    _check_margin("triplet_margin_loss", margin)
    near = F.pairwise_distance(anchor, positive, float(p), eps)
    far = F.pairwise_distance(anchor, negative, float(p), eps)
    if swap:
        far = F.minimum(far, F.pairwise_distance(positive, negative, float(p), eps))
    return reduce_loss("triplet_margin_loss", _hinge(near - far + margin), reduction)


def triplet_margin_with_distance_loss(
    anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"
):
    """triplet_margin_loss with a distance of one's own."""
    _check_margin("triplet_margin_with_distance_loss", margin)
    distance = F.pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = F.minimum(far, distance(positive, negative))
    loss = _hinge(near - far + margin)
    return reduce_loss("triplet_margin_with_distance_loss", loss, reduction)


def _check_margin(name: str, margin: float):
    if margin <= 0:
        raise ValueRangeError(name, f"margin is {margin}; it must be greater than 0")


# -- connectionist temporal classification

_NEVER = -1e30  # log of a probability of zero that sums and gradients can bear


@op(hidden=True, name="ctc_loss")
def _ctc_start(log_probs: Tensor, labels: Tensor):
    """log_probs (T, N, C), labels (N, L) with blanks in between -> log probabilities of the first label or blank (N, L)"""
    first = F.take_along_axis(F.reshape(F.slice_axis(log_probs, 0, 0, 1), log_probs.shape[1:]), labels, -1)
    return F.where(F.less(F.Iota(labels.shape, 1, dtypes.int64)(), 2), first, _NEVER)


@op(hidden=True, name="ctc_loss")
def _ctc_step(alpha: Tensor, log_probs: Tensor, labels: Tensor, may_skip: Tensor, lengths: Tensor, t: Tensor):
    """One step in time: stay, come from the label before, or skip a blank."""
    emitted = F.take_along_axis(log_probs, labels, -1)
    before = F.slice_axis(F.pad(alpha, (1, 0), value=_NEVER), 1, 0, alpha.shape[1])
    skipped = F.where(may_skip, F.slice_axis(F.pad(alpha, (2, 0), value=_NEVER), 1, 0, alpha.shape[1]), _NEVER)
    best = F.stop_gradient(F.maximum(F.maximum(alpha, before), skipped))
    total = best + F.log(F.exp(alpha - best) + F.exp(before - best) + F.exp(skipped - best))
    return F.where(F.unsqueeze(F.less(t, lengths), -1), F.maximum(total + emitted, _NEVER), alpha)


@op(hidden=True, name="ctc_loss")
def _ctc_end(alpha: Tensor, lengths: Tensor):
    """Minus the log probability of ending with the last label or the blank after it."""
    last = F.unsqueeze(2 * lengths, -1)
    end = F.take_along_axis(alpha, last, -1)
    label = F.where(F.greater(last, 0), F.take_along_axis(alpha, F.maximum(last - 1, 0), -1), _NEVER)
    return -F.squeeze(F.logaddexp(end, label), -1)


def ctc_loss(
    log_probs,
    targets,
    input_lengths,
    target_lengths,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
):
    """Connectionist temporal classification (Graves et al., 2006): -log of the target's probability over all alignments.

    log_probs: (T, N, C) or (T, C); targets: (N, S), or all after each other; lengths: (N). reduction "mean" divides each loss
    by its target's length first. zero_infinity: impossible targets count as 0.
    """
    single = log_probs.ndim == 2
    log_probs = log_probs.unsqueeze(1) if single else log_probs
    steps, batch = log_probs.shape[:2]
    lengths = [asarray(v).reshape(-1).to(dtypes.int64) for v in (input_lengths, target_lengths)]
    counts = [int(n) for n in lengths[1].tolist()] if targets.ndim == 1 else []
    lengths = [v.to(log_probs.device) for v in lengths]  # they may be in host memory
    targets = targets.to(log_probs.device)
    if targets.ndim == 1:
        longest, rows, start = max(counts, default=0), [], 0
        for n in counts:
            rows.append(F.pad(targets[start : start + n], (0, longest - n), value=blank))
            start += n
        targets = F.stack(rows)
    targets = targets.to(dtypes.int64)
    size = targets.shape[1]
    labels = F.full((batch, 2 * size + 1), blank, dtype=dtypes.int64, device=log_probs.device)
    labels[:, 1::2] = targets
    # A blank may be left out between two labels that differ.
    may_skip = F.full(labels.shape, False, dtype=dtypes.bool_, device=log_probs.device)
    may_skip[:, 3::2] = targets[:, 1:] != targets[:, :-1]
    alpha = _ctc_start(log_probs, labels)
    for t in range(1, steps):
        alpha = _ctc_step(alpha, log_probs[t], labels, may_skip, lengths[0], t)
    loss = _ctc_end(alpha, lengths[1])
    impossible = loss > -_NEVER / 10
    loss = F.where(impossible, 0.0 if zero_infinity else float("inf"), loss)
    if reduction == "mean":
        return (loss / F.maximum(lengths[1], 1).to(loss.dtype)).mean()
    if reduction == "sum":
        return loss.sum()
    return loss.squeeze(0) if single else loss


def linear_cross_entropy(input, linear_weight, target, *, linear_bias=None, weight=None, reduction: str = "mean",
                         ignore_index: int | None = None, label_smoothing: float = 0.0, options=None):  # fmt: skip
    """cross_entropy of linear(input, linear_weight, linear_bias). input: (N, E) or (E,), linear_weight: (C, E).

    options, PyTorch's for how much is computed at a time, are accepted and change nothing.

    >>> td.nn.functional.linear_cross_entropy(td.zeros(2, 3), td.zeros(4, 3), td.tensor([0, 1]))
    tensor(1.3863)
    """
    if linear_weight.ndim != 2:
        raise ShapeError(
            "linear_cross_entropy",
            f"linear_weight is {show_shape(linear_weight.shape)}; it must be (classes, features)",
        )
    if ignore_index is not None and target.dtype.is_floating:
        raise ValueRangeError(
            "linear_cross_entropy", f"ignore_index is {ignore_index}, but target holds probabilities, not classes"
        )
    logits = F.linear(input, linear_weight, linear_bias)
    ignored = -100 if ignore_index is None else ignore_index
    return F.cross_entropy(
        logits, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing
    )
