"""nn: operators for networks under their classic names."""

import tandem as _td
from tandem.v1.wrap import in_graph

relu = in_graph(_td.relu)
sigmoid = in_graph(_td.sigmoid)
tanh = in_graph(_td.tanh)
softplus = in_graph(_td.softplus)
elu = in_graph(_td.elu)
bias_add = in_graph(_td.add)


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
def dropout(x, keep_prob):
    """Zeros for all but this share of the elements; what stays grows accordingly."""
    kept = _td.rand(*x.shape) < keep_prob
    return _td.where(kept, x / keep_prob, 0.0)


@in_graph
def moments(x, axes, keep_dims=False):
    mean = x.mean(axes, keepdims=True)
    variance = ((x - mean) * (x - mean)).mean(axes, keepdims=keep_dims)
    return (mean if keep_dims else x.mean(axes)), variance


@in_graph
def embedding_lookup(params, ids):
    return params[ids]


@in_graph
def conv2d(x, filter, strides, padding):
    """x: (N, H, W, C), filter: (h, w, C, K) -> (N, H', W', K); padding is "SAME" or "VALID"."""
    window = filter.shape[:2]
    x = _pad(x, window, strides[1:3], padding, 0.0).permute(0, 3, 1, 2)
    return _td.conv2d(x, filter.permute(3, 2, 0, 1), None, tuple(strides[1:3])).permute(0, 2, 3, 1)


@in_graph
def max_pool(x, ksize, strides, padding):
    """x: (N, H, W, C), the largest element of each window."""
    x = _pad(x, ksize[1:3], strides[1:3], padding, float("-inf")).permute(0, 3, 1, 2)
    return _td.max_pool2d(x, tuple(ksize[1:3]), tuple(strides[1:3])).permute(0, 2, 3, 1)


def _pad(x, window, strides, padding: str, value: float):
    """SAME: as many zeros around as make the output as large as the input over the stride; the odd one goes to the end."""
    if padding == "VALID":
        return x
    around = []
    for n, k, s in zip(x.shape[1:3], window, strides, strict=True):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        around.append((total // 2, total - total // 2))
    return _td.pad(x, (0, 0, *around[1], *around[0]), value=value)
