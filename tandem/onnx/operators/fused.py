"""Operators of onnxruntime (com.microsoft) that its optimiser and its builders of language models write: several in one."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

import tandem.nn.functional as F
import tandem.ops as ops
from tandem import dtypes
from tandem.onnx.operators.attention import rotary_embedding
from tandem.onnx.operators.convolution import convolve
from tandem.onnx.operators.linear import gemm
from tandem.onnx.operators.normalization import rms_norm
from tandem.onnx.registry import MICROSOFT, onnx_op
from tandem.tensors.constructors import asarray, zeros

# By name: (x, alpha, beta) -> activation; None: what the standard has where nothing is given.
_ACTIVATIONS = {
    "Relu": lambda x, a, b: ops.relu(x),
    "Tanh": lambda x, a, b: ops.tanh(x),
    "Sigmoid": lambda x, a, b: ops.sigmoid(x),
    "LeakyRelu": lambda x, a, b: F.leaky_relu(x, 0.01 if a is None else a),
    "Clip": lambda x, a, b: ops.clip(x, a, b),
    "HardSigmoid": lambda x, a, b: ops.clip((0.2 if a is None else a) * x + (0.5 if b is None else b), 0, 1),
}


def _activated(x, name: str | None, alpha=None, beta=None):
    return _ACTIVATIONS[name](x, alpha, beta) if name else x


@onnx_op("FusedConv", "NhwcFusedConv", domain=MICROSOFT)
def fused_conv(node, x, weight, bias=None, more=None):
    last = node.op.startswith("Nhwc")
    y = convolve(node, channels_first(x) if last else x, weight, bias)
    y = channels_last(y) if last else y
    y = y if more is None else y + more
    params = [*node.get("activation_params", []), None, None]
    return _activated(y, node.get("activation"), *params[:2])


def channels_first(x):
    return x.permute((0, x.ndim - 1, *range(1, x.ndim - 1)))


def channels_last(x):
    return x.permute((0, *range(2, x.ndim), 1))


@onnx_op("FusedGemm", domain=MICROSOFT)
def fused_gemm(node, a, b, c=None):
    return _activated(
        gemm(node, a, b, c), node.get("activation"), node.get("activation_alpha"), node.get("activation_beta")
    )


@onnx_op("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul(node, a, b):
    for name in "AB":
        x = a if name == "A" else b
        if node.get(f"transBatch{name}", 0):  # the batch is before the last axis
            x = x.permute((*range(1, x.ndim - 1), 0, x.ndim - 1))
        x = x.mT if node.get(f"trans{name}", 0) and x.ndim > 1 else x
        a, b = (x, b) if name == "A" else (a, x)
    alpha = node.get("alpha", 1.0)
    y = ops.matmul(a, b) * alpha if alpha != 1 else ops.matmul(a, b)
    return _activated(y, node.get("activation"), node.get("activation_alpha"), node.get("activation_beta"))


@onnx_op("Gelu", domain=MICROSOFT)
def gelu(node, x):
    return F.gelu(x)


@onnx_op("BiasGelu", domain=MICROSOFT)
def bias_gelu(node, x, bias):
    return F.gelu(x + bias)


@onnx_op("FastGelu", domain=MICROSOFT)
def fast_gelu(node, x, bias=None):
    return F.gelu(x if bias is None else x + bias, approximate="tanh")


@onnx_op("QuickGelu", domain=MICROSOFT)
def quick_gelu(node, x):
    return x * ops.sigmoid(node.get("alpha", 1.702) * x)


@onnx_op("SimplifiedLayerNormalization")
@onnx_op("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_norm(node, x, scale):
    y = rms_norm(node, x, scale)
    if not node.has_output(1):
        return y
    wide = x.to(dtypes.float32)
    axes = tuple(range(node.get("axis", -1) % x.ndim, x.ndim))
    return y, ops.rsqrt(ops.mean(wide * wide, axis=axes, keepdims=True) + node.get("epsilon", 1e-5))


@onnx_op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(node, x, skip, scale, shift=None, bias=None):
    total = x + skip if bias is None else x + skip + bias
    made = F.layer_norm(total, (total.shape[-1],), scale, shift, node.get("epsilon", 1e-12))
    if not (node.has_output(1) or node.has_output(2)):
        return made, None, None, total
    mean = ops.mean(total, axis=-1, keepdims=True)
    centred = total - mean
    return (
        made,
        mean,
        ops.rsqrt(ops.mean(centred * centred, axis=-1, keepdims=True) + node.get("epsilon", 1e-12)),
        total,
    )


@onnx_op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_norm(node, x, skip, scale, bias=None):
    total = x + skip if bias is None else x + skip + bias
    return rms_norm(node, total, scale), None, None, total


@onnx_op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(node, ids, segments, words, places, kinds, scale, shift, mask=None, positions=None):
    batch, length = ids.shape
    total = F.embedding(ids, words)
    total = total + (places[:length] if positions is None else F.embedding(positions, places))
    if segments is not None:
        total = total + F.embedding(segments, kinds)
    made = F.layer_norm(total, (total.shape[-1],), scale, shift, node.get("epsilon", 1e-12))
    seen = zeros((batch,), dtype=dtypes.int32) if mask is None else ops.sum(mask.to(dtypes.int32), axis=1)
    return made, seen.to(dtypes.int32), total


# -- attention


def _split(x, heads: int):
    """(batch, length, heads * size) -> (batch, heads, length, size)."""
    return x.reshape((x.shape[0], x.shape[1], heads, -1)).permute((0, 2, 1, 3))


def _joined(x):
    return x.permute((0, 2, 1, 3)).reshape((x.shape[0], x.shape[2], -1))


def _attend(node, q, k, v, bias):
    scale = node.get("scale", 0.0) or 1 / math.sqrt(int(q.shape[-1]))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def _padding(node, mask, batch: int, queries: int, keys: int):
    """What is added to the scores for keys that are padding. mask: (batch) lengths, (2 * batch) ends and starts, (batch, keys),
    or (batch, queries, keys), 0 for what is not seen."""
    if mask is None:
        return None
    if mask.ndim == 1:
        at = ops.arange(keys)[None]
        ends = mask[:batch].reshape((batch, 1))
        seen = at < ends
        if int(mask.shape[0]) > batch:
            seen = seen & (at >= mask[batch : 2 * batch].reshape((batch, 1)))
        seen = seen[:, None, None]
    else:
        seen = mask != 0
        seen = seen[:, None, None] if mask.ndim == 2 else seen[:, None] if mask.ndim == 3 else seen
    return ops.where(seen, 0.0, float(node.get("mask_filter_value", -10000.0)))


def _causal(queries: int, keys: int, window: int = -1):
    at = ops.arange(queries)[:, None] + (keys - queries)
    key = ops.arange(keys)[None]
    seen = key <= at
    if window > 0:
        seen = seen & (key > at - window)
    return ops.where(seen, 0.0, -math.inf)


def _sum(*biases):
    made = [b for b in biases if b is not None]
    return sum(made[1:], made[0]) if made else None


def _extended(past, new):
    return new if past is None or int(past.shape[2]) == 0 else ops.concat([past, new], axis=2)


@onnx_op("Attention", domain=MICROSOFT)
def attention(node, x, weights, bias=None, mask=None, past=None, more=None, past_length=None):
    heads, sizes = node["num_heads"], node.get("qkv_hidden_sizes") or [int(weights.shape[1]) // 3] * 3
    total = ops.matmul(x, weights) if bias is None else ops.matmul(x, weights) + bias
    q, k, v = (_split(part, heads) for part in ops.split(total, list(sizes), axis=-1))
    if past is not None:
        k, v = _extended(past[0], k), _extended(past[1], v)
    queries, keys = int(q.shape[2]), int(k.shape[2])
    causal = _causal(queries, keys) if node.get("unidirectional", 0) else None
    made = _attend(node, q, k, v, _sum(_padding(node, mask, int(x.shape[0]), queries, keys), causal, more))
    return _joined(made), ops.stack([k, v]) if node.has_output(1) else None


@onnx_op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    node, q, k=None, v=None, bias=None, mask=None, more=None, past_k=None, past_v=None, past_length=None
):
    heads = node["num_heads"]
    if k is None and q.ndim == 5:  # packed: (batch, length, heads, 3, size)
        q, k, v = (q[:, :, :, i].reshape((q.shape[0], q.shape[1], -1)) for i in range(3))
    elif v is None and k is not None and k.ndim == 5:  # (batch, length, heads, 2, size)
        k, v = (k[:, :, :, i].reshape((k.shape[0], k.shape[1], -1)) for i in range(2))
    if bias is not None:
        width = int(q.shape[-1])
        q = q + bias[:width]
        k = k + bias[width : 2 * width] if k.ndim == 3 else k
        v = v + bias[2 * width :] if v.ndim == 3 else v
    q, k, v = (_split(x, heads) if x.ndim == 3 else x for x in (q, k, v))
    k, v = _extended(past_k, k), _extended(past_v, v)
    queries, keys = int(q.shape[2]), int(k.shape[2])
    causal = _causal(queries, keys) if node.get("unidirectional", 0) else None
    made = _attend(node, q, k, v, _sum(_padding(node, mask, int(q.shape[0]), queries, keys), causal, more))
    return _joined(made), k, v


@onnx_op("RotaryEmbedding", domain=MICROSOFT, static=(1,))
def microsoft_rotary_embedding(node, x, positions, cos, sin):
    length = int(x.shape[1] if x.ndim == 3 else x.shape[2])
    if positions.size == 1:  # of the first token
        positions = np.broadcast_to(int(positions.reshape(())) + np.arange(length), (int(x.shape[0]), length))
    if x.ndim == 3 and not node.get("num_heads", 0):
        size = 2 * int(cos.shape[1]) if not node.get("rotary_embedding_dim", 0) else int(x.shape[-1])
        node = _with(node, num_heads=int(x.shape[-1]) // size)
    return rotary_embedding(node, x, cos, sin, _tensor(positions))


def _with(node, **attributes):
    return dataclasses.replace(node, attributes={**node.attributes, **attributes})


def _tensor(array):
    return asarray(np.ascontiguousarray(array))


@onnx_op("GroupQueryAttention", domain=MICROSOFT, static=(5, 6))
def group_query_attention(node, q, k, v, past_k, past_v, last, total, cos=None, sin=None, positions=None, more=None):
    """Sequences end at positions `last` (batch); those that are shorter than others are padded at their ends."""
    heads, kv_heads = node["num_heads"], node["kv_num_heads"]
    if k is None:  # packed
        size = int(q.shape[-1]) // (heads + 2 * kv_heads)
        q, k, v = ops.split(q, [heads * size, kv_heads * size, kv_heads * size], axis=-1)
    batch, length = int(q.shape[0]), int(q.shape[1])
    lengths = np.asarray(last).reshape(-1).astype(np.int64) + 1  # with those of this call
    q, k, v = _split(q, heads), _split(k, kv_heads), _split(v, kv_heads)
    before = 0 if past_k is None else int(past_k.shape[2])
    # A prompt begins at 0, whatever room a cache has; a later call goes on where each sequence is.
    first = np.zeros(batch, np.int64) if length > 1 and length >= int(total) else lengths - length
    if node.get("do_rotary", 0):
        at = first[:, None] + np.arange(length)[None] if positions is None else None
        at = np.maximum(at, 0) if at is not None else None
        turns = _with(node, interleaved=node.get("rotary_interleaved", 0), rotary_embedding_dim=0)
        where = positions if at is None else _tensor(at)
        width = 2 * int(cos.shape[1])
        turns = turns if width == int(q.shape[-1]) else _with(turns, rotary_embedding_dim=width)
        q, k = (rotary_embedding(turns, x, cos, sin, where) for x in (q, k))
    keys = int(total)
    if before and (first > 0).any():
        room = max(before, keys)
        rows = np.arange(batch)[:, None]
        slots = first[:, None] + np.arange(length)[None]
        k, v = (_written(past, new, room, rows, slots) for past, new in ((past_k, k), (past_v, v)))
    elif before > length:
        k, v = (ops.concat([new, past[:, :, length:]], axis=2) for past, new in ((past_k, k), (past_v, v)))
    present = k, v
    k, v = k[:, :, :keys], v[:, :, :keys]
    at = (first[:, None] + np.arange(length)[None])[:, None, :, None]
    key = np.arange(keys)[None, None, None]
    seen = key <= at
    window = node.get("local_window_size", -1)
    if window > 0:
        seen = seen & (key > at - window)
    bias = _tensor(np.where(seen, np.float32(0), np.float32(-np.inf))).to(q.dtype)
    bias = bias if more is None else bias + more
    if heads != kv_heads:
        k, v = (ops.repeat_interleave(x, heads // kv_heads, axis=1) for x in (k, v))
    if node.get("softcap", 0.0):
        cap, scale = node["softcap"], node.get("scale", 0.0) or 1 / math.sqrt(int(q.shape[-1]))
        scores = cap * ops.tanh(ops.matmul(q, k.mT) * (scale / cap)) + bias
        made = ops.matmul(ops.softmax(scores, axis=-1), v)
    else:
        made = _attend(node, q, k, v, bias)
    return _joined(made), *present


def _written(past, new, room: int, rows: np.ndarray, slots: np.ndarray):
    """(batch, heads, room, size): the past, with the new ones at their slots."""
    made = past if int(past.shape[2]) == room else F.pad(past, (0, 0, 0, room - int(past.shape[2])))
    made = made.permute((0, 2, 1, 3)).clone()
    made[_tensor(np.broadcast_to(rows, slots.shape)), _tensor(slots)] = new.permute((0, 2, 1, 3))
    return made.permute((0, 2, 1, 3))
