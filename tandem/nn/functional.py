"""The functions of neural networks under PyTorch's names: `import tandem.nn.functional as F`."""

from tandem.ops import (
    adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d,
    alpha_dropout, avg_pool1d, avg_pool2d, avg_pool3d, batch_norm, bilinear, binary_cross_entropy, binary_cross_entropy_with_logits,
    celu, conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d, cosine_similarity, cross_entropy, dropout,
    dropout1d, dropout2d, dropout3d, elu, embedding, feature_alpha_dropout, gelu, glu, group_norm, gru_cell, hardshrink, hardsigmoid,
    hardswish, hardtanh, huber_loss, instance_norm, kl_div, l1_loss, layer_norm, leaky_relu, linear, log_softmax, logsigmoid, lstm_cell,
    max_pool1d, max_pool2d, max_pool3d, mish, mse_loss, nll_loss, normalize, one_hot, pad, pairwise_distance, prelu, relu, relu6,
    rms_norm, rnn_relu_cell, rnn_tanh_cell, scaled_dot_product_attention, selu, sigmoid, silu, smooth_l1_loss, softmax, softmin,
    softplus, softshrink, softsign, tanh, tanhshrink, threshold,
)  # fmt: skip

__all__ = sorted(name for name in dir() if not name.startswith("_"))
