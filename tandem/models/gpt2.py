"""GPT-2 (Radford et al., 2019). Weights are named as in the published checkpoints; load_published turns their matrices around."""

from __future__ import annotations

import math

import tandem as td
from tandem import nn
from tandem.generation import generate, stream
from tandem.nn import functional as F

SIZES = {  # layers, heads, width
    "gpt2": (12, 12, 768),
    "gpt2-medium": (24, 16, 1024),
    "gpt2-large": (36, 20, 1280),
    "gpt2-xl": (48, 25, 1600),
}


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.resid_dropout = nn.Dropout(dropout)

    def forward(self, x, cache=None, layer: int = 0):
        b, t, d = x.shape
        q, k, v = self.c_attn(x).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mask = None
        if cache is not None:
            k, v = cache.extend(layer, k, v)
            mask = cache.mask
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=mask is None)
        return self.resid_dropout(self.c_proj(y.permute(0, 2, 1, 3).reshape(b, t, d)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads, dropout)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, cache=None, layer: int = 0):
        x = x + self.attn(self.ln_1(x), cache, layer)
        hidden = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.dropout(self.mlp["c_proj"](hidden))


class GPT2(nn.Module):
    """tokens: (n, t) whole numbers -> scores of the next tokens (n, t, vocabulary)

    >>> model = td.models.GPT2(vocabulary=100, context=16, layers=2, heads=2, width=8).eval()
    >>> model(td.zeros(1, 5, dtype=td.int64)).shape
    (1, 5, 100)
    """

    def __init__(self, vocabulary: int = 50257, context: int = 1024, layers: int = 12, heads: int = 12, width: int = 768,
                 dropout: float = 0.1):  # fmt: skip
        super().__init__()
        self.vocabulary, self.context, self.cache_sizes = vocabulary, context, (layers, heads, width // heads)
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList([Block(width, heads, dropout) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = None  # scores are products with embeddings
        for name, p in self.named_parameters():
            if name.endswith("c_proj.weight"):  # what is added to the residual stream, once per half block
                nn.init.normal_(p, 0.0, 0.02 / math.sqrt(2 * layers))
            elif p.ndim == 2:
                nn.init.normal_(p, 0.0, 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def hidden(self, tokens, cache=None):
        """The last layer's activations (n, t, width). With a cache, tokens are at its positions, and go on from what it holds."""
        positions = td.arange(tokens.shape[1], device=tokens.device) if cache is None else cache.positions
        x = self.drop(self.wte(tokens) + self.wpe(positions))
        for i, block in enumerate(self.h):
            x = block(x, cache, i)
        return self.ln_f(x)

    def scores(self, hidden):
        return F.linear(hidden, self.wte.weight) if self.lm_head is None else self.lm_head(hidden)

    def untie(self):
        """Makes the product with embeddings a layer of its own, `lm_head`, of the same weights; td.quantize begins with it."""
        if self.lm_head is None:
            weight = self.wte.weight
            self.lm_head = nn.Linear(
                weight.shape[1], weight.shape[0], bias=False, device=weight.device, dtype=weight.dtype
            )
            self.lm_head.weight = weight

    def forward(self, tokens):
        return self.scores(self.hidden(tokens))

    def generate(
        self, tokens, count: int, temperature: float = 1.0, top_k: int | None = None, generator=None, **settings
    ):
        """tokens (n, t), or a list of prompts, with `count` more; all settings are those of td.generation.generate."""
        return generate(self, tokens, count, temperature=temperature, top_k=top_k, generator=generator, **settings)

    def stream(self, tokens, count: int, **settings):
        """The tokens of `generate` as they are made; settings as of td.generation.stream."""
        return stream(self, tokens, count, **settings)

    def load_published(self, state: dict, strict: bool = True):
        """Takes over weights as published: matrices of the blocks are stored (in, out), names may begin with "transformer."."""
        taken = {}
        for name, value in state.items():
            name = name.removeprefix("transformer.")
            if name.endswith((".attn.bias", ".attn.masked_bias")) or name == "lm_head.weight":
                continue
            transposed = name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))
            taken[name] = value.T.contiguous() if transposed else value
        return self.load_state_dict(taken, strict=strict)


def gpt2(name: str = "gpt2", **settings) -> GPT2:
    """A model of the family by its published name: gpt2, gpt2-medium, gpt2-large or gpt2-xl."""
    layers, heads, width = SIZES[name]
    return GPT2(**{"layers": layers, "heads": heads, "width": width, **settings})
