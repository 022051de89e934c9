"""Normalisation."""

from __future__ import annotations

import tandem.nn.functional as F
import tandem.ops as ops
from tandem import dtypes
from tandem.onnx.registry import onnx_op
from tandem.onnx.types import dtype_of


def _per_channel(p, x):
    return p.reshape((1, -1, *(1 for _ in range(x.ndim - 2))))


@onnx_op("BatchNormalization", since=1)
def batch_norm_attributes(node, x, scale, bias, mean, var):
    return F.batch_norm(x, mean, var, scale, bias, eps=node.get("epsilon", 1e-5))


@onnx_op("BatchNormalization", since=14)
def batch_norm(node, x, scale, bias, mean, var):
    eps = node.get("epsilon", 1e-5)
    if not node.get("training_mode", 0):
        if x.dtype is scale.dtype is mean.dtype:
            return F.batch_norm(x, mean, var, scale, bias, eps=eps)
        inverse = scale.to(dtypes.float32) * ops.rsqrt(var.to(dtypes.float32) + eps)
        y = (x.to(dtypes.float32) - _per_channel(mean, x)) * _per_channel(inverse, x) + _per_channel(bias, x)
        return y.to(x.dtype)
    axes = (0, *range(2, x.ndim))
    batch_mean = ops.mean(x, axis=axes)
    batch_var = ops.var(x, axis=axes, correction=0)
    momentum = node.get("momentum", 0.9)
    normal = (x - _per_channel(batch_mean, x)) * _per_channel(scale * ops.rsqrt(batch_var + eps), x) + _per_channel(
        bias, x
    )
    running = (mean * momentum + batch_mean * (1 - momentum), var * momentum + batch_var * (1 - momentum))
    return normal, *running


@onnx_op("InstanceNormalization")
def instance_norm(node, x, scale, bias):
    return F.instance_norm(x, weight=scale, bias=bias, eps=node.get("epsilon", 1e-5))


@onnx_op("GroupNormalization", since=18)
def group_norm_by_group(node, x, scale, bias):
    """Scale and bias for each group, as version 18 had them."""
    groups = node["num_groups"]
    each = x.shape[1] // groups
    y = F.group_norm(x, groups, eps=node.get("epsilon", 1e-5))
    spread = lambda p: _per_channel(ops.repeat_interleave(p, each), x)
    return y * spread(scale) + spread(bias)


@onnx_op("GroupNormalization", since=21)
def group_norm(node, x, scale, bias):
    return F.group_norm(x, node["num_groups"], scale, bias, node.get("epsilon", 1e-5))


@onnx_op("LayerNormalization")
def layer_norm(node, x, scale, bias=None):
    axis, eps = node.get("axis", -1) % x.ndim, node.get("epsilon", 1e-5)
    if not node.has_output(1) and tuple(scale.shape) == tuple(x.shape[axis:]):
        if bias is None or bias.shape == scale.shape:
            return F.layer_norm(x, tuple(x.shape[axis:]), scale, bias, eps)
    axes = tuple(range(axis, x.ndim))
    wide = x.to(dtype_of(node.get("stash_type", 1)))
    mean = ops.mean(wide, axis=axes, keepdims=True)
    centred = wide - mean
    inverse = ops.rsqrt(ops.mean(centred * centred, axis=axes, keepdims=True) + eps)
    y = (centred * inverse).to(x.dtype) * scale
    return y if bias is None else y + bias, mean, inverse


@onnx_op("RMSNormalization")
def rms_norm(node, x, scale):
    axis, eps = node.get("axis", -1) % x.ndim, node.get("epsilon", 1e-5)
    axes = tuple(range(axis, x.ndim))
    wide = x.to(dtype_of(node.get("stash_type", 1)))
    y = wide * ops.rsqrt(ops.mean(wide * wide, axis=axes, keepdims=True) + eps)
    return y.to(x.dtype) * scale


@onnx_op("LRN")
def lrn(node, x):
    return F.local_response_norm(
        x, node["size"], node.get("alpha", 1e-4), node.get("beta", 0.75), node.get("bias", 1.0)
    )


@onnx_op("LpNormalization")
def lp_norm(node, x):
    axis, p = node.get("axis", -1), node.get("p", 2)
    if p == 1:
        length = ops.sum(ops.abs(x), axis=axis, keepdims=True)
    else:
        length = ops.sqrt(ops.sum(x * x, axis=axis, keepdims=True))
    return ops.where(length == 0, 0, x / ops.where(length == 0, 1, length))


@onnx_op("MeanVarianceNormalization")
def mean_variance_norm(node, x):
    axes = tuple(node.get("axes", [0, 2, 3]))
    centred = x - ops.mean(x, axis=axes, keepdims=True)
    return centred / (ops.sqrt(ops.mean(centred * centred, axis=axes, keepdims=True)) + 1e-9)
