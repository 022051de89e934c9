"""Batch normalisation over the batches of several ranks: each makes statistics of its own, all get everyone's and put them
together. That is one collective forward and one backward; the gradient is that of the statistics of all samples."""

from __future__ import annotations

import tandem.ops as F
from tandem.graph.ir import Value
from tandem.graph.symbolic import product
from tandem.ops.define import op
from tandem.ops.normalization import _channel_affine, _check_channels, _per_channel, _update
from tandem.ops.precision import widen
from tandem.ops.prepare import cast, constant, full_expand, to_float


@op(name="sync_batch_norm", hidden=True)
def _own_statistics(x: Tensor):
    """Of each channel: how many samples, their mean, and the sum of squared deviations from it. A rank may have no samples.

    x: (N, C, *s) -> (1, 3, C)
    """
    _check_channels("sync_batch_norm", x)
    wide = widen(to_float(x))
    axes = tuple(i for i in range(x.ndim) if i != 1)
    row = (1, 1, x.shape[1])
    count = constant(product(x.shape[a] for a in axes), wide.dtype)
    mean = F.Reshape(row)(F.Reduce("sum", axes)(wide)) / F.maximum(count, constant(1, wide.dtype))
    centred = wide - _per_channel(F.Reshape((x.shape[1],))(mean), x.ndim)
    squares = F.Reshape(row)(F.Reduce("sum", axes)(centred * centred))
    return F.concatenate([full_expand(count, row), mean, squares], 1)


@op(name="sync_batch_norm", hidden=True)
def _by_statistics(x: Tensor, every: Tensor, weight: Tensor | None, bias: Tensor | None, eps):
    """Batch normalisation by the statistics of all ranks; also their mean and unbiased variance, without gradient.

    x: (N, C, *s); every: (ranks, 3, C) -> (N, C, *s), (C), (C)
    """
    x, channels = to_float(x), (x.shape[1],)
    one = constant(1, every.dtype)
    counts, means, squares = (F.select(every, 1, i) for i in range(3))
    total = F.maximum(F.sum(counts, 0), one)
    mean = F.sum(counts * means, 0) / total
    apart = means - F.Reshape((1, *channels))(mean)
    spread = F.sum(squares + counts * apart * apart, 0)
    scale = one / F.sqrt(spread / total + constant(eps, every.dtype))
    y = cast((widen(x) - _per_channel(mean, x.ndim)) * _per_channel(scale, x.ndim), x.dtype)
    unbiased = spread / F.maximum(total - one, one)
    return _channel_affine("sync_batch_norm", y, weight, bias), F.stop_gradient(mean), F.stop_gradient(unbiased)


def sync_batch_norm(
    x: Value, running_mean, running_var, weight, bias, momentum: float, eps: float, token: int, size: int
):
    """batch_norm while training, by the statistics of all ranks of a group, which running_mean and running_var follow."""
    every = F.all_gather(_own_statistics(x), token, size)
    y, mean, variance = _by_statistics(x, every, weight, bias, eps)
    _update(running_mean, running_var, mean, variance, momentum)
    return y
