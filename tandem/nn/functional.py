"""The functions of neural networks under PyTorch's names: `import tandem.nn.functional as F`."""

from tandem.nn.attention_functions import multi_head_attention_forward
from tandem.nn.bags import embedding, embedding_bag
from tandem.nn.loss_functions import (
    cosine_embedding_loss,
    ctc_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    linear_cross_entropy,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    poisson_nll_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)  # fmt: skip
from tandem.nn.old_reduction import take_old_arguments as _take_old_arguments
from tandem.nn.randomized import gumbel_softmax, rrelu, rrelu_
from tandem.nn.resample import (
    channel_shuffle,
    interpolate,
    pixel_shuffle,
    pixel_unshuffle,
    upsample,
    upsample_bilinear,
    upsample_nearest,
)
from tandem.nn.sampled_losses import embedding_lookup, nce_loss, sampled_softmax_loss
from tandem.nn.sampling import affine_grid, fractional_max_pool2d, fractional_max_pool3d, grid_sample
from tandem.nn.windows import (
    fold,
    local_response_norm,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
    unfold,
)  # fmt: skip
from tandem.ops import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    alpha_dropout,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    batch_norm,
    bilinear,
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    celu,
    celu_,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    cosine_similarity,
    cross_entropy,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    elu,
    elu_,
    feature_alpha_dropout,
    gelu,
    glu,
    group_norm,
    gru_cell,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    hardtanh_,
    huber_loss,
    instance_norm,
    kl_div,
    l1_loss,
    layer_norm,
    leaky_relu,
    leaky_relu_,
    linear,
    log_softmax,
    logsigmoid,
    lstm_cell,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    mish,
    mse_loss,
    nll_loss,
    normalize,
    one_hot,
    pad,
    pairwise_distance,
    pdist,
    prelu,
    relu,
    relu6,
    relu_,
    rms_norm,
    rnn_relu_cell,
    rnn_tanh_cell,
    scaled_dot_product_attention,
    selu,
    selu_,
    sigmoid,
    silu,
    smooth_l1_loss,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    tanh,
    tanhshrink,
    threshold,
    threshold_,
)  # fmt: skip


def conv_tbc(input, weight, bias=None, pad: int = 0):  # noqa: F811
    """Convolution along time of (T, N, C) by (K, C, O), with as much padding on both ends: (T', N, O).

    >>> td.nn.functional.conv_tbc(td.ones(5, 2, 3), td.ones(3, 3, 4)).shape
    (3, 2, 4)
    """
    return conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad).permute(2, 0, 1)


def _with_indices(pool):
    def with_indices(*args, **kwargs):
        return pool(*args, **{**kwargs, "return_indices": True})

    with_indices.__name__ = with_indices.__qualname__ = pool.__name__ + "_with_indices"
    with_indices.__doc__ = f"{pool.__name__} with return_indices=True."
    return with_indices


for _pool in (
    max_pool1d, max_pool2d, max_pool3d, adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d, fractional_max_pool2d,
    fractional_max_pool3d,
):  # fmt: skip
    globals()[_pool.__name__ + "_with_indices"] = _with_indices(_pool)
del _pool
_take_old_arguments(globals())

__all__ = sorted(name for name in dir() if not name.startswith("_"))
