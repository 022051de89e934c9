"""Attention with several heads."""

from __future__ import annotations

import math

import tandem.ops as ops
from tandem import dtypes
from tandem.nn import functional as F
from tandem.nn import init
from tandem.nn.linear import NonDynamicallyQuantizableLinear, empty_parameter
from tandem.nn.module import Module


class MultiheadAttention(Module):
    """Attention of num_heads heads side by side.

    query: (T, N, E), (N, T, E) with batch_first, or (T, E); key, value: (S, N, kdim / vdim) alike. attn_mask: (T, S) or
    (N * heads, T, S), key_padding_mask: (N, S); True (or -inf, added) for what must not be seen.
    -> output of query's shape, attention weights (N, T, S), the mean over heads, or None without need_weights

    >>> layer = td.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> out, weights = layer(td.ones(1, 3, 8), td.ones(1, 5, 8), td.ones(1, 5, 8))
    >>> out.shape, weights.shape
    ((1, 3, 8), (1, 3, 5))
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
                 add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
                 device=None, dtype=None):  # fmt: skip
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} does not divide into {num_heads} heads")
        made = {"device": device, "dtype": dtype}
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        same = self._qkv_same_embed_dim
        self.register_parameter("in_proj_weight", empty_parameter(3 * embed_dim, embed_dim, **made) if same else None)
        for name, width in (("q_proj_weight", embed_dim), ("k_proj_weight", self.kdim), ("v_proj_weight", self.vdim)):
            self.register_parameter(name, None if same else empty_parameter(embed_dim, width, **made))
        self.register_parameter("in_proj_bias", empty_parameter(3 * embed_dim, **made) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **made)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, empty_parameter(1, 1, embed_dim, **made) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self):
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def forward(self, query, key, value, key_padding_mask=None, need_weights: bool = True, attn_mask=None,
                average_attn_weights: bool = True, is_causal: bool = False):  # fmt: skip
        single = query.ndim == 2
        same_kv, self_attention = value is key, key is query
        if single:
            query = query.unsqueeze(0)
            key = query if self_attention else key.unsqueeze(0)
            value = key if same_kv else value.unsqueeze(0)
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query = query.transpose(0, 1)
            key = query if self_attention else key.transpose(0, 1)
            value = key if same_kv else value.transpose(0, 1)
        q, k, v = self._project(query, key, value)  # (N, T or S, E)
        extra = 0
        if self.bias_k is not None:
            k, v = (
                ops.concat([x, b.expand(x.shape[0], 1, self.embed_dim)], 1)
                for x, b in ((k, self.bias_k), (v, self.bias_v))
            )
            extra += 1
        q, k, v = (
            x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2) for x in (q, k, v)
        )  # (N, heads, T or S, D)
        if self.add_zero_attn:
            k, v = (F.pad(x, (0, 0, 0, 1)) for x in (k, v))
            extra += 1
        # The causal limit is a hint for a mask that is given anyway; alone it is not allowed, as in PyTorch.
        if is_causal and attn_mask is None:
            raise ValueError("is_causal=True needs the causal attn_mask too")
        mask = self._mask(attn_mask, key_padding_mask, extra, q.shape[0], q.dtype)
        drop = self.dropout if self.training else 0.0
        if need_weights:
            out, weights = self._attend(q, k, v, mask, drop)
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights.squeeze(0) if single else weights
        else:
            out, weights = F.scaled_dot_product_attention(q, k, v, mask, drop), None
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        return (out.squeeze(0) if single else out if self.batch_first else out.transpose(0, 1)), weights

    def _project(self, query, key, value):
        e, bias = self.embed_dim, self.in_proj_bias
        if self._qkv_same_embed_dim:
            if key is query and value is key:
                return ops.chunk(F.linear(query, self.in_proj_weight, bias), 3, -1)
            w = self.in_proj_weight
            if value is key:
                q = F.linear(query, w[:e], None if bias is None else bias[:e])
                return q, *ops.chunk(F.linear(key, w[e:], None if bias is None else bias[e:]), 2, -1)
            weights = (w[:e], w[e : 2 * e], w[2 * e :])
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if bias is None else (bias[:e], bias[e : 2 * e], bias[2 * e :])
        return tuple(F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))

    def _mask(self, attn_mask, key_padding_mask, extra: int, batch: int, dtype):
        """One mask for the scores: True for what may be seen, or numbers to add; None if there is none."""
        masks = []
        if attn_mask is not None:
            if attn_mask.ndim == 3:
                attn_mask = attn_mask.reshape(batch, self.num_heads, *attn_mask.shape[1:])
            masks.append(attn_mask)
        if key_padding_mask is not None:
            masks.append(key_padding_mask[:, None, None, :])
        if extra:  # what was added to the keys can always be seen
            masks = [
                F.pad(m, (0, extra)) if m.dtype is not dtypes.bool_ else F.pad(m, (0, extra), value=False)
                for m in masks
            ]
        if not masks:
            return None
        if all(m.dtype is dtypes.bool_ for m in masks):
            hidden = masks[0] if len(masks) == 1 else ops.logical_or(*masks)
            return ops.logical_not(hidden)
        numbers = [ops.where(m, -math.inf, 0.0).to(dtype) if m.dtype is dtypes.bool_ else m.to(dtype) for m in masks]
        return numbers[0] if len(numbers) == 1 else numbers[0] + numbers[1]

    def _attend(self, q, k, v, mask, drop: float):
        scores = (q * (1.0 / math.sqrt(self.head_dim))) @ k.mT
        if mask is not None:
            scores = ops.where(mask, scores, -math.inf) if mask.dtype is dtypes.bool_ else scores + mask
        weights = F.softmax(scores, -1)
        if drop:
            weights = F.dropout(weights, drop, True)
        return weights @ v, weights

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}"
