"""Attention of several heads side by side, as a function of its weights."""

from __future__ import annotations

import math

import tandem.ops as ops
from tandem import dtypes


def multi_head_attention_forward(
    query, key, value, embed_dim_to_check: int, num_heads: int, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn: bool,
    dropout_p: float, out_proj_weight, out_proj_bias, training: bool = True, key_padding_mask=None, need_weights: bool = True,
    attn_mask=None, use_separate_proj_weight: bool = False, q_proj_weight=None, k_proj_weight=None, v_proj_weight=None,
    static_k=None, static_v=None, average_attn_weights: bool = True, is_causal: bool = False,
):  # fmt: skip
    """What nn.MultiheadAttention computes: (output, weights or None).

    query: (T, N, E) or (T, E), key, value: (S, N, E) or (S, E) alike; in_proj_weight: (3 E, E), or three of q_proj_weight (E, E),
    k_proj_weight, v_proj_weight with use_separate_proj_weight. Masks as nn.MultiheadAttention has them.
    static_k, static_v: (N * heads, S, E / heads), in place of projected keys and values.
    """
    if query.shape[-1] != embed_dim_to_check:
        raise ValueError(f"query has {query.shape[-1]} features; embed_dim_to_check is {embed_dim_to_check}")
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight
    single = query.ndim == 2
    arguments = batch_first(query, key, value, single, False)
    padding = key_padding_mask[None] if single and key_padding_mask is not None else key_padding_mask
    out, seen = attend(
        *arguments, num_heads, weights, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p if training else 0.0,
        out_proj_weight, out_proj_bias, padding, need_weights, attn_mask, average_attn_weights, is_causal, static_k, static_v,
    )  # fmt: skip
    if single:
        return out.squeeze(0), None if seen is None else seen.squeeze(0)
    return out.transpose(0, 1), seen


def batch_first(query, key, value, single: bool, first: bool):
    """(N, T, E) of what may be (T, E) or (T, N, E); what is one tensor stays one."""
    same_kv, same_q = value is key, key is query

    def transposed(x):
        return x.unsqueeze(0) if single else x if first else x.transpose(0, 1)

    query = transposed(query)
    key = query if same_q else transposed(key)
    return query, key, key if same_kv else transposed(value)


def attend(query, key, value, heads: int, weights, bias, bias_k, bias_v, add_zero_attn: bool, drop: float, out_weight, out_bias,
           key_padding_mask, need_weights: bool, attn_mask, average: bool, is_causal: bool, static_k=None,
           static_v=None):  # fmt: skip
    """(N, T, E), (N, S, ...), (N, S, ...) -> (N, T, E), and (N, T, S) or (N, heads, T, S) or None. weights: one for all three, or
    three."""
    # A hint that the mask which is given is the causal one; alone it is not allowed, as in PyTorch.
    if is_causal and attn_mask is None:
        raise ValueError("is_causal=True needs the causal attn_mask too")
    causal = is_causal and key_padding_mask is None and not need_weights and bias_k is None and not add_zero_attn
    if causal:
        attn_mask = None  # which is not looked at, then
    embed = query.shape[-1]
    q, k, v = _project(query, key, value, embed, weights, bias)
    extra = 0
    if bias_k is not None:
        k, v = (ops.concat([x, b.expand(x.shape[0], 1, embed)], 1) for x, b in ((k, bias_k), (v, bias_v)))
        extra += 1
    q, k, v = (x.unflatten(-1, (heads, embed // heads)).transpose(1, 2) for x in (q, k, v))  # (N, heads, T or S, D)
    k, v = (
        x if given is None else given.unflatten(0, (q.shape[0], heads)) for x, given in ((k, static_k), (v, static_v))
    )
    if add_zero_attn:
        k, v = (ops.pad(x, (0, 0, 0, 1)) for x in (k, v))
        extra += 1
    mask = _mask(attn_mask, key_padding_mask, extra, q.shape[0], heads, q.dtype)
    if need_weights:
        out, seen = _with_weights(q, k, v, mask, drop)
        seen = seen.mean(1) if average else seen
    else:
        out, seen = ops.scaled_dot_product_attention(q, k, v, mask, drop, causal), None
    return ops.linear(out.transpose(1, 2).flatten(2), out_weight, out_bias), seen


def _project(query, key, value, e: int, weights, bias):
    biases = (None,) * 3 if bias is None else (bias[:e], bias[e : 2 * e], bias[2 * e :])
    if not isinstance(weights, tuple):
        if key is query and value is key:
            return ops.chunk(ops.linear(query, weights, bias), 3, -1)
        if value is key:
            q = ops.linear(query, weights[:e], biases[0])
            return q, *ops.chunk(ops.linear(key, weights[e:], None if bias is None else bias[e:]), 2, -1)
        weights = (weights[:e], weights[e : 2 * e], weights[2 * e :])
    return tuple(ops.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))


def _mask(attn_mask, key_padding_mask, extra: int, batch: int, heads: int, dtype):
    """One mask for the scores: True for what may be seen, or numbers to add; None if there is none."""
    masks = []
    if attn_mask is not None:
        masks.append(attn_mask.reshape(batch, heads, *attn_mask.shape[1:]) if attn_mask.ndim == 3 else attn_mask)
    if key_padding_mask is not None:
        masks.append(key_padding_mask[:, None, None, :])
    if extra:  # what was added to the keys can always be seen
        masks = [
            ops.pad(m, (0, extra)) if m.dtype is not dtypes.bool_ else ops.pad(m, (0, extra), value=False)
            for m in masks
        ]
    if not masks:
        return None
    if all(m.dtype is dtypes.bool_ for m in masks):
        hidden = masks[0] if len(masks) == 1 else ops.logical_or(*masks)
        return ops.logical_not(hidden)
    numbers = [ops.where(m, -math.inf, 0.0).to(dtype) if m.dtype is dtypes.bool_ else m.to(dtype) for m in masks]
    return numbers[0] if len(numbers) == 1 else numbers[0] + numbers[1]


def _with_weights(q, k, v, mask, drop: float):
    scores = (q * (1.0 / math.sqrt(q.shape[-1]))) @ k.mT
    if mask is not None:
        scores = ops.where(mask, scores, -math.inf) if mask.dtype is dtypes.bool_ else scores + mask
    weights = ops.softmax(scores, -1)
    if drop:
        weights = ops.dropout(weights, drop, True)
    return weights @ v, weights
