"""nn: operators for networks under their classic names."""

from typing import NamedTuple

import tandem as _td
from tandem.errors import ValueRangeError
from tandem.nn import candidates as _candidates
from tandem.nn import sampled_losses as _losses
from tandem.session.graph import SymbolicTensor
from tandem.v1.left_out import refuse
from tandem.v1.shapes import sizes
from tandem.v1.wrap import in_graph, operand

_FEATURES = {"features": "x"}
relu = in_graph(_td.relu, _FEATURES)
relu6 = in_graph(_td.relu6, _FEATURES)
selu = in_graph(_td.selu, _FEATURES)
softsign = in_graph(_td.softsign, _FEATURES)
sigmoid = in_graph(_td.sigmoid)
tanh = in_graph(_td.tanh)
softplus = in_graph(_td.softplus, _FEATURES)
elu = in_graph(_td.elu, _FEATURES)
bias_add = in_graph(_td.add, {"value": "x", "bias": "y"})


@in_graph
def leaky_relu(features, alpha=0.2):
    """x where it is positive, alpha * x elsewhere."""
    return _td.leaky_relu(features, alpha)


@in_graph
def softmax(logits, axis=-1, dim=None):
    return _td.softmax(logits, axis if dim is None else dim)


@in_graph
def log_softmax(logits, axis=-1, dim=None):
    return _td.log_softmax(logits, axis if dim is None else dim)


@in_graph
def softmax_cross_entropy_with_logits(logits=None, labels=None, dim=-1):
    """Of each row of logits, against a row of probabilities: (N, C), (N, C) -> (N)."""
    return -(labels * _td.log_softmax(logits, dim)).sum(dim)


@in_graph
def sparse_softmax_cross_entropy_with_logits(logits=None, labels=None):
    """Of each row of logits, against the index of a class: (N, C), (N) -> (N)."""
    return _td.cross_entropy(logits, labels.astype(_td.int64), reduction="none")


@in_graph
def sigmoid_cross_entropy_with_logits(logits=None, labels=None):
    return _td.relu(logits) - logits * labels + _td.log1p(_td.exp(-_td.abs(logits)))


@in_graph
def l2_loss(x):
    """Half the sum of squares."""
    return (x * x).sum() / 2


@in_graph
def dropout(x, keep_prob=None, noise_shape=None, seed=None, rate=None):
    """Zeros for all but this share of the elements, or for the share `rate`; what stays grows accordingly.

    noise_shape: where a size is 1 and that of x is not, elements along this axis stay or go together.
    """
    keep_prob = 1 - rate if keep_prob is None else keep_prob
    shape = x.shape if noise_shape is None else sizes("dropout", noise_shape)
    kept = _td.rand(*shape, generator=None if seed is None else _td.Generator(seed)) < keep_prob
    return _td.where(kept, x / keep_prob, 0.0)


@in_graph
def moments(x, axes, shift=None, keep_dims=False):
    """Mean and variance over these axes. shift is accepted without effect."""
    mean = x.mean(axes, keepdims=True)
    variance = ((x - mean) * (x - mean)).mean(axes, keepdims=keep_dims)
    return (mean if keep_dims else x.mean(axes)), variance


@in_graph
def batch_normalization(x, mean, variance, offset, scale, variance_epsilon):
    """(x - mean) / sqrt(variance + epsilon) * scale + offset; offset and scale may be None."""
    factor = _td.rsqrt(operand(variance) + variance_epsilon)
    factor = factor if scale is None else factor * scale
    return (x - mean) * factor if offset is None else (x - mean) * factor + offset


class TopK(NamedTuple):
    values: SymbolicTensor
    indices: SymbolicTensor


@in_graph
def top_k(input, k=1, sorted=True):
    """(values, indices) of the k largest elements along the last axis, largest first."""
    values, indices = _td.topk(input, k)
    return TopK(values, indices.astype(_td.int32))


@in_graph
def l2_normalize(x, axis=None, epsilon=1e-12, dim=None):
    """x over its norm along an axis, which counts as sqrt(epsilon) at least."""
    squares = (x * x).sum(axis if dim is None else dim, keepdims=True)
    return x * _td.rsqrt(_td.maximum(squares, epsilon))


@in_graph
def embedding_lookup(params, ids, partition_strategy="mod"):
    """Rows of a table, or of one that is a list of shards: id k is row k // n of shard k % n ("mod"), or shards hold neighbouring
    ids ("div")."""
    if not isinstance(params, (list, tuple)):
        return params[ids]
    return _losses.embedding_lookup([operand(p) for p in params], operand(ids), partition_strategy)


@in_graph
def log_uniform_candidate_sampler(true_classes, num_true, num_sampled, unique, range_max, seed=None):
    """sampled_candidates, true_expected_count, sampled_expected_count; see tandem/nn/candidates.py."""
    return _candidates.log_uniform_candidate_sampler(
        operand(true_classes), num_true, num_sampled, unique, range_max, seed
    )


@in_graph
def uniform_candidate_sampler(true_classes, num_true, num_sampled, unique, range_max, seed=None):
    """sampled_candidates, true_expected_count, sampled_expected_count; see tandem/nn/candidates.py."""
    return _candidates.uniform_candidate_sampler(operand(true_classes), num_true, num_sampled, unique, range_max, seed)


learned_unigram_candidate_sampler = _candidates.learned_unigram_candidate_sampler


@in_graph
def sampled_softmax_loss(weights, biases, labels, inputs, num_sampled, num_classes, num_true=1, sampled_values=None,
                         remove_accidental_hits=True, partition_strategy="mod"):  # fmt: skip
    """Cross-entropy over true classes and a sample of the others: (batch)."""
    return _losses.sampled_softmax_loss(weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values,
                                        remove_accidental_hits, partition_strategy=partition_strategy)  # fmt: skip


@in_graph
def nce_loss(weights, biases, labels, inputs, num_sampled, num_classes, num_true=1, sampled_values=None,
             remove_accidental_hits=False, partition_strategy="mod"):  # fmt: skip
    """Noise-contrastive estimation: (batch)."""
    return _losses.nce_loss(weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values,
                            remove_accidental_hits, partition_strategy=partition_strategy)  # fmt: skip


@in_graph
def conv2d(input, filter, strides, padding):
    """input: (N, H, W, C), filter: (h, w, C, K) -> (N, H', W', K); padding is "SAME" or "VALID"."""
    window = filter.shape[:2]
    x = _pad(operand(input), window, strides[1:3], padding, 0.0).permute(0, 3, 1, 2)
    return _td.conv2d(x, filter.permute(3, 2, 0, 1), None, tuple(strides[1:3])).permute(0, 2, 3, 1)


@in_graph
def max_pool(value, ksize, strides, padding):
    """value: (N, H, W, C), the largest element of each window."""
    x = _pad(operand(value), ksize[1:3], strides[1:3], padding, float("-inf")).permute(0, 3, 1, 2)
    return _td.max_pool2d(x, tuple(ksize[1:3]), tuple(strides[1:3])).permute(0, 2, 3, 1)


@in_graph
def avg_pool(value, ksize, strides, padding):
    """value: (N, H, W, C), the mean of each window. Elements around it that padding adds do not count."""
    window, steps = tuple(ksize[1:3]), tuple(strides[1:3])

    def pooled(x):
        x = _pad(x, window, steps, padding, 0.0).permute(0, 3, 1, 2)
        return _td.avg_pool2d(x, window, steps).permute(0, 2, 3, 1)

    if padding == "VALID":
        return pooled(value)
    return pooled(value) / pooled(_td.ones(1, *value.shape[1:3], 1, dtype=value.dtype))


def _pad(x, window, strides, padding: str, value: float):
    """SAME: as many zeros around as make the output as large as the input over the stride; the odd one goes to the end."""
    if padding == "VALID":
        return x
    if padding != "SAME":
        raise ValueRangeError("pad", f"padding is {padding!r}; it must be 'SAME' or 'VALID'")
    around = []
    for n, k, s in zip(x.shape[1:3], window, strides, strict=True):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        around.append((total // 2, total - total // 2))
    return _td.pad(x, (0, 0, *around[1], *around[0]), value=value)


def __getattr__(name):
    raise refuse(__name__, name)
