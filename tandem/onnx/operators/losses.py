"""Losses."""

from __future__ import annotations

import tandem.ops as ops
from tandem import dtypes
from tandem.onnx.registry import onnx_op


def _negative_log_likelihood(node, log_p, target, weight):
    ignored = node.get("ignore_index")
    target = target.to(dtypes.int64)
    safe = target if ignored is None else ops.where(target == ignored, 0, target)
    picked = -ops.squeeze(ops.gather(log_p, 1, ops.unsqueeze(safe, 1)), (1,))
    w = ops.ones_like(picked) if weight is None else weight[safe].to(picked.dtype)
    if ignored is not None:
        w = ops.where(target == ignored, 0, w)
    loss = picked * w
    reduction = node.get("reduction", "mean")
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / w.sum()


@onnx_op("NegativeLogLikelihoodLoss")
def negative_log_likelihood(node, log_p, target, weight=None):
    return _negative_log_likelihood(node, log_p, target, weight)


@onnx_op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(node, scores, target, weight=None):
    log_p = ops.log_softmax(scores, axis=1)
    return _negative_log_likelihood(node, log_p, target, weight), log_p
