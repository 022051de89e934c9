"""Transformers (Vaswani et al., 2017)."""

from __future__ import annotations

import copy

import tandem.ops as ops
from tandem import dtypes
from tandem.nn import functional as F
from tandem.nn import init
from tandem.nn.attention import MultiheadAttention
from tandem.nn.containers import ModuleList
from tandem.nn.dropout import Dropout
from tandem.nn.linear import Linear
from tandem.nn.module import Module
from tandem.nn.normalization import LayerNorm


def causal_mask(size: int, device=None, dtype=None):
    """-inf above the diagonal, 0 elsewhere: (size, size)."""
    return ops.triu(ops.full((size, size), float("-inf"), dtype=dtype or dtypes.default_float(), device=device), 1)


def _activation(activation):
    if isinstance(activation, str):
        if activation not in ("relu", "gelu"):
            raise ValueError(f"activation is {activation!r}; it must be 'relu', 'gelu' or a function")
        return getattr(F, activation)
    return activation


def _copies(module: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


class _Layer(Module):
    def __init__(
        self, d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, made
    ):
        super().__init__()
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **made)
        if isinstance(self, TransformerDecoderLayer):
            self.multihead_attn = MultiheadAttention(
                d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **made
            )
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **made)
        self.norm_first = norm_first
        for i in range(1, self.parts + 1):
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made))
        for i in range(1, self.parts + 1):
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _activation(activation)

    def _feed_forward(self, x, drop: Module):
        return drop(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def _attend_self(self, x, mask, padding, is_causal):
        causal = is_causal and mask is not None
        out = self.self_attn(x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=causal)[0]
        return self.dropout1(out)


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual connection and layer normalisation.

    src: (S, N, E), (N, S, E) with batch_first, or (S, E) -> same shape

    >>> td.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(td.ones(1, 5, 8)).shape
    (1, 5, 8)
    """

    parts = 2

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation=F.relu,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device=None,
                 dtype=None):  # fmt: skip
        super().__init__(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
                         {"device": device, "dtype": dtype})  # fmt: skip

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal: bool = False):
        x = src
        if self.norm_first:
            x = x + self._attend_self(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            return x + self._feed_forward(self.norm2(x), self.dropout2)
        x = self.norm1(x + self._attend_self(x, src_mask, src_key_padding_mask, is_causal))
        return self.norm2(x + self._feed_forward(x, self.dropout2))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to an encoder's output, and a feed-forward network.

    tgt: (T, N, E), memory: (S, N, E), with batch_first (N, T, E) and (N, S, E) -> shape of tgt
    """

    parts = 3

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation=F.relu,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device=None,
                 dtype=None):  # fmt: skip
        super().__init__(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
                         {"device": device, "dtype": dtype})  # fmt: skip

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None,
                tgt_is_causal: bool = False, memory_is_causal: bool = False):  # fmt: skip
        def attend_memory(x):
            out = self.multihead_attn(x, memory, memory, attn_mask=memory_mask, key_padding_mask=memory_key_padding_mask,
                                      need_weights=False)[0]  # fmt: skip
            return self.dropout2(out)

        x = tgt
        if self.norm_first:
            x = x + self._attend_self(self.norm1(x), tgt_mask, tgt_key_padding_mask, tgt_is_causal)
            x = x + attend_memory(self.norm2(x))
            return x + self._feed_forward(self.norm3(x), self.dropout3)
        x = self.norm1(x + self._attend_self(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
        x = self.norm2(x + attend_memory(x))
        return self.norm3(x + self._feed_forward(x, self.dropout3))


class TransformerEncoder(Module):
    """num_layers copies of an encoder layer, and a normalisation at the end if one is given."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True,
                 mask_check: bool = True):  # fmt: skip
        super().__init__()
        self.layers, self.num_layers, self.norm = _copies(encoder_layer, num_layers), num_layers, norm

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal: bool | None = None):
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """num_layers copies of a decoder layer, and a normalisation at the end if one is given."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__()
        self.layers, self.num_layers, self.norm = _copies(decoder_layer, num_layers), num_layers, norm

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None,
                tgt_is_causal: bool | None = None, memory_is_causal: bool = False):  # fmt: skip
        for layer in self.layers:
            tgt = layer(
                tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, bool(tgt_is_causal)
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Encoder and decoder. src: (S, N, E), tgt: (T, N, E), with batch_first the batch comes first -> shape of tgt"""

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
                 dim_feedforward: int = 2048, dropout: float = 0.1, activation=F.relu, custom_encoder=None, custom_decoder=None,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device=None,
                 dtype=None):  # fmt: skip
        super().__init__()
        made = {"device": device, "dtype": dtype}
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made)
            self.encoder = TransformerEncoder(TransformerEncoderLayer(*layer, **made), num_encoder_layers, norm)
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made)
            self.decoder = TransformerDecoder(TransformerDecoderLayer(*layer, **made), num_decoder_layers, norm)
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)

    def forward(
        self,
        src,
        tgt,
        src_mask=None,
        tgt_mask=None,
        memory_mask=None,
        src_key_padding_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ):
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device=None, dtype=None):
        """-inf above the diagonal, 0 elsewhere: (sz, sz)."""
        return causal_mask(sz, device, dtype)
