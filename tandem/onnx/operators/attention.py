"""Attention and the positions that go with it."""

from __future__ import annotations

import math

import numpy as np

import tandem.nn.functional as F
import tandem.ops as ops
from tandem import dtypes
from tandem.onnx.registry import onnx_op
from tandem.onnx.types import dtype_of
from tandem.tensors.constructors import asarray


def _heads(x, count: int):
    """(batch, length, heads * size) -> (batch, heads, length, size)."""
    batch, length, width = x.shape
    return x.reshape((batch, length, count, width // count)).permute((0, 2, 1, 3))


@onnx_op("Attention", static=(6,))
def attention(node, q, k, v, mask=None, past_k=None, past_v=None, lengths=None):
    flat = q.ndim == 3
    if flat:
        q, k, v = _heads(q, node["q_num_heads"]), _heads(k, node["kv_num_heads"]), _heads(v, node["kv_num_heads"])
    offset = np.zeros((1, 1), np.int64)  # keys before the first query, for each example
    if past_k is not None:
        offset = offset + int(past_k.shape[2])
        k, v = ops.concat([past_k, k], axis=2), ops.concat([past_v, v], axis=2)
    elif lengths is not None:
        offset = np.asarray(lengths).reshape(-1, 1) - int(q.shape[2])
    present = (k, v)
    scale = node.get("scale")
    scale = 1 / math.sqrt(int(q.shape[-1])) if scale is None else scale
    repeats = int(q.shape[1]) // int(k.shape[1])
    if repeats > 1:
        k, v = ops.repeat_interleave(k, repeats, axis=1), ops.repeat_interleave(v, repeats, axis=1)
    bias, may_be_empty = _bias(node, q, int(k.shape[2]), mask, offset, lengths)
    plain = not node.get("softcap", 0.0) and not node.has_output(3) and "softmax_precision" not in node.attributes
    if plain and not may_be_empty:
        y, scores = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale), None
    else:
        y, scores = _in_steps(node, q, k, v, bias, scale)
    if flat:
        y = y.permute((0, 2, 1, 3)).reshape((y.shape[0], y.shape[2], -1))
    return y, *present, scores


def _bias(node, q, keys: int, mask, offset: np.ndarray, lengths):
    """(what is added to the scores or None, whether a row may see no key at all)."""
    bias = None
    if mask is not None:
        bias = ops.where(mask, 0.0, -math.inf).to(q.dtype) if mask.dtype is dtypes.bool_ else mask
        if int(bias.shape[-1]) < keys:  # what a mask does not reach is not seen
            bias = F.pad(bias, (0, keys - int(bias.shape[-1])), value=-math.inf)
    seen = _seen(node, int(q.shape[2]), keys, offset, lengths)
    if seen is not None:
        hidden = asarray(np.where(seen, np.float32(0), np.float32(-np.inf))).to(q.dtype)
        bias = hidden if bias is None else bias + hidden
    return bias, mask is not None or (seen is not None and not seen.any(-1).all())


def _seen(node, queries: int, keys: int, offset: np.ndarray, lengths) -> np.ndarray | None:
    """Which key each query sees by its position, (batch or 1, 1, queries, keys); None for all of them."""
    at = (offset + np.arange(queries)[None])[:, None, :, None]
    key = np.arange(keys)[None, None, None]
    left, right = node.get("left_window_size", -1), node.get("right_window_size", -1)
    rules = []
    if node.get("is_causal", 0):
        rules.append(key <= at)
    if left >= 0:
        rules.append(key >= at - left)
    if right >= 0:
        rules.append(key <= at + right)
    if lengths is not None:
        rules.append(key < np.asarray(lengths).reshape(-1, 1, 1, 1))
    seen = None
    for rule in rules:
        seen = rule if seen is None else seen & rule
    return seen


def _in_steps(node, q, k, v, bias, scale: float):
    """(result, what the fourth output asks for): products, cap, mask, softmax."""
    root, softcap, mode = math.sqrt(scale), node.get("softcap", 0.0), node.get("qk_matmul_output_mode", 0)
    scores = ops.matmul(q * root, k.mT * root)
    stages = [scores]
    if softcap:
        scores = softcap * ops.tanh(scores / softcap)
    stages.append(scores)
    scores = scores if bias is None else scores + bias
    stages.append(scores)
    precision = node.get("softmax_precision")
    wide = scores if precision is None else scores.to(dtype_of(precision))
    if bias is not None:  # a row that sees nothing is zero
        wide = ops.where(ops.amax(wide, axis=-1, keepdims=True) == -math.inf, 0, wide)
    weights = ops.softmax(wide, axis=-1).to(q.dtype)
    if bias is not None:
        weights = ops.where(ops.amax(scores, axis=-1, keepdims=True) == -math.inf, 0, weights)
    stages.append(weights)
    return ops.matmul(weights, v), stages[mode]


@onnx_op("RotaryEmbedding")
def rotary_embedding(node, x, cos, sin, positions=None):
    flat = x.ndim == 3
    if flat:
        x = _heads(x, node["num_heads"])
    size = int(x.shape[-1])
    turned = node.get("rotary_embedding_dim", 0) or size
    if positions is not None:
        cos, sin = (_rows(t, positions) for t in (cos, sin))
    cos, sin = (ops.unsqueeze(t[..., : turned // 2], 1) for t in (cos, sin))
    part, rest = x[..., :turned], x[..., turned:]
    if node.get("interleaved", 0):
        a, b = part[..., 0::2], part[..., 1::2]
        joined = ops.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(part.shape)
    else:
        a, b = part[..., : turned // 2], part[..., turned // 2 :]
        joined = ops.concat([a * cos - b * sin, a * sin + b * cos], axis=-1)
    y = ops.concat([joined, rest], axis=-1) if turned < size else joined
    return y.permute((0, 2, 1, 3)).reshape((y.shape[0], y.shape[2], -1)) if flat else y


def _rows(table, positions):
    rows = ops.index_select(table, 0, positions.reshape((-1,)))
    return rows.reshape((*positions.shape, table.shape[-1]))
