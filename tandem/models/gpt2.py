"""GPT-2 (Radford et al., 2019). Weights are named as in the published checkpoints; load_published turns their matrices around."""

from __future__ import annotations

import math

import tandem as td
from tandem import nn
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

    def forward(self, x, past=None):
        b, t, d = x.shape
        q, k, v = self.c_attn(x).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        if past is not None:
            k, v = td.cat([past[0], k], 2), td.cat([past[1], v], 2)
        dropout = self.dropout if self.training else 0.0
        # One new token may look at all before it; several at once only at those up to themselves.
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=past is None)
        y = y.permute(0, 2, 1, 3).reshape(b, t, d)
        return self.resid_dropout(self.c_proj(y)), (k, v)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads, dropout)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, past=None):
        y, present = self.attn(self.ln_1(x), past)
        x = x + y
        hidden = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.dropout(self.mlp["c_proj"](hidden)), present


class GPT2(nn.Module):
    """tokens: (n, t) whole numbers -> scores of the next tokens (n, t, vocabulary)

    >>> model = td.models.GPT2(vocabulary=100, context=16, layers=2, heads=2, width=8).eval()
    >>> model(td.zeros(1, 5, dtype=td.int64)).shape
    (1, 5, 100)
    """

    def __init__(self, vocabulary: int = 50257, context: int = 1024, layers: int = 12, heads: int = 12, width: int = 768,
                 dropout: float = 0.1):  # fmt: skip
        super().__init__()
        self.context = context
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList([Block(width, heads, dropout) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if name.endswith("c_proj.weight"):  # what is added to the residual stream, once per half block
                nn.init.normal_(p, 0.0, 0.02 / math.sqrt(2 * layers))
            elif p.ndim == 2:
                nn.init.normal_(p, 0.0, 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def hidden(self, tokens, past=None):
        """The last layer's activations (n, t, width), and keys and values to go on from."""
        start = 0 if past is None else past[0][0].shape[2]
        positions = td.arange(start, start + tokens.shape[1])
        x = self.drop(self.wte(tokens) + self.wpe(positions))
        presents = []
        for i, block in enumerate(self.h):
            x, present = block(x, None if past is None else past[i])
            presents.append(present)
        return self.ln_f(x), presents

    def forward(self, tokens):
        return F.linear(self.hidden(tokens)[0], self.wte.weight)

    @td.no_grad()
    def generate(self, tokens, count: int, temperature: float = 1.0, top_k: int | None = None, generator=None):
        """tokens (n, t) with `count` more, drawn from what the model expects; temperature 0 takes the likeliest."""
        past, step = None, tokens
        for _ in range(count):
            if past is not None and past[0][0].shape[2] >= self.context:
                past, step = None, tokens[:, -self.context // 2 :]
            hidden, past = self.hidden(step, past)
            scores = F.linear(hidden[:, -1], self.wte.weight)
            if temperature == 0:
                step = scores.argmax(-1, keepdim=True)
            else:
                scores = scores / temperature
                if top_k is not None:
                    least = scores.topk(min(top_k, scores.shape[-1]), -1)[0][:, -1:]
                    scores = td.where(scores < least, -float("inf"), scores)
                step = td.multinomial(F.softmax(scores, -1), 1, generator=generator)
            tokens = td.cat([tokens, step], 1)
        return tokens

    def load_published(self, state: dict, strict: bool = True):
        """Takes over weights as published: matrices of the blocks are stored (in, out), names may begin with "transformer."."""
        taken = {}
        for name, value in state.items():
            name = name.removeprefix("transformer.")
            if name.endswith((".attn.bias", ".attn.masked_bias")) or name == "lm_head.weight":
                continue
            turned = name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))
            taken[name] = value.T.contiguous() if turned else value
        return self.load_state_dict(taken, strict=strict)


def gpt2(name: str = "gpt2", **settings) -> GPT2:
    """A model of the family by its published name: gpt2, gpt2-medium, gpt2-large or gpt2-xl."""
    layers, heads, width = SIZES[name]
    return GPT2(**{"layers": layers, "heads": heads, "width": width, **settings})
