"""Attention with several heads, and PyTorch's choice of how attention is computed."""

from __future__ import annotations

import contextlib
import enum

from tandem.errors import UnsupportedError
from tandem.nn import functional, init
from tandem.nn.attention_functions import attend, batch_first
from tandem.nn.linear import NonDynamicallyQuantizableLinear, empty_parameter
from tandem.nn.module import Module
from tandem.ops.create import arange


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
        if getattr(query, "is_nested", False):
            return self._attend_nested(query, key, value, key_padding_mask, attn_mask, is_causal), None
        single = query.ndim == 2
        query, key, value = batch_first(query, key, value, single, self.batch_first)
        if single and key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
        weights = self.in_proj_weight
        if not self._qkv_same_embed_dim:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        out, seen = attend(
            query, key, value, self.num_heads, weights, self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn,
            self.dropout if self.training else 0.0, self.out_proj.weight, self.out_proj.bias, key_padding_mask, need_weights,
            attn_mask, average_attn_weights, is_causal,
        )  # fmt: skip
        if single:
            return out.squeeze(0), None if seen is None else seen.squeeze(0)
        return (out if self.batch_first else out.transpose(0, 1)), seen

    def _attend_nested(self, query, key, value, key_padding_mask, attn_mask, is_causal: bool):
        """Of nested tensors (B, ragged, E): no mask says where they end. With other masks, bias_k or dropout of weights they are
        padded on the way."""
        if key_padding_mask is not None:
            raise UnsupportedError(
                "MultiheadAttention", "key_padding_mask is given, but nested tensors have no padding",
                fix="leave it out, or use x.to_padded_tensor(0.0)",
            )  # fmt: skip
        plain = self.bias_k is None and not self.add_zero_attn and not (self.dropout and self.training)
        if not plain or (attn_mask is not None and not is_causal):
            whole = [x.to_padded_tensor(0.0) for x in (query, key, value)]
            if not self.batch_first:
                whole = [x.transpose(0, 1) for x in whole]
            if is_causal and attn_mask is None:
                rows, columns = (arange(x.shape[1], device=query.device) for x in (query, key))
                attn_mask = columns > rows.unsqueeze(1)
            made, _ = self.forward(*whole, key.padding(), False, attn_mask)
            return query.from_padded(made if self.batch_first else made.transpose(0, 1))
        same = self._qkv_same_embed_dim
        weights = self.in_proj_weight.chunk(3) if same else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        heads = [
            functional.linear(x, w, b).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for x, w, b in zip((query, key, value), weights, biases, strict=True)
        ]
        made = functional.scaled_dot_product_attention(*heads, is_causal=is_causal)
        return self.out_proj(made.transpose(1, 2).flatten(-2))

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}"


class SDPBackend(enum.IntEnum):
    """PyTorch's names for ways of computing attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends, set_priority: bool = False):
    """Accepts PyTorch's choice of ways of computing attention; there is one here for every device and type, and it is taken.

    >>> with td.nn.attention.sdpa_kernel(td.nn.attention.SDPBackend.MATH):
    ...     pass
    """
    given = [backends] if isinstance(backends, SDPBackend) else list(backends)
    for b in given:
        if not isinstance(b, SDPBackend):
            raise TypeError(f"sdpa_kernel takes SDPBackend or a list of them, not {b!r}")
    if not given:
        raise ValueError("sdpa_kernel was given no backend")
    yield
