"""The BERT encoder (Devlin et al., 2019). Names of weights as in the published checkpoints."""

from __future__ import annotations

import tandem as td
from tandem import nn
from tandem.nn import functional as F


class Embeddings(nn.Module):
    def __init__(self, vocabulary: int, width: int, positions: int, types: int, dropout: float):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, width)
        self.position_embeddings, self.token_type_embeddings = (
            nn.Embedding(positions, width),
            nn.Embedding(types, width),
        )
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens, types=None):
        types = td.zeros_like(tokens) if types is None else types
        x = self.word_embeddings(tokens) + self.token_type_embeddings(types)
        positions = td.arange(tokens.shape[1], device=tokens.device)
        return self.dropout(self.LayerNorm(x + self.position_embeddings(positions)))


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        b, t, d = x.shape
        q, k, v = (
            f(x).reshape(b, t, self.heads, d // self.heads).permute(0, 2, 1, 3)
            for f in (self.query, self.key, self.value)
        )
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        return y.permute(0, 2, 1, 3).reshape(b, t, d)


class AddAndNorm(nn.Module):
    def __init__(self, inner: int, width: int, dropout: float):
        super().__init__()
        self.dense, self.LayerNorm = nn.Linear(inner, width), nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, y, x):
        return self.LayerNorm(self.dropout(self.dense(y)) + x)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, dropout: float):
        super().__init__()
        self.attention = nn.ModuleDict(
            {"self": SelfAttention(width, heads, dropout), "output": AddAndNorm(width, width, dropout)}
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output = AddAndNorm(inner, width, dropout)

    def forward(self, x, mask=None):
        x = self.attention["output"](self.attention["self"](x, mask), x)
        return self.output(F.gelu(self.intermediate["dense"](x)), x)


class BERT(nn.Module):
    """tokens: (n, t) whole numbers -> activations (n, t, width) and the pooled first one (n, width)

    attention_mask: (n, t), 1 for tokens and 0 for padding; token_type_ids: (n, t), which sentence a token belongs to.
    """

    def __init__(self, vocabulary: int = 30522, width: int = 768, layers: int = 12, heads: int = 12, inner: int | None = None,
                 positions: int = 512, types: int = 2, dropout: float = 0.1):  # fmt: skip
        super().__init__()
        inner = 4 * width if inner is None else inner
        self.embeddings = Embeddings(vocabulary, width, positions, types, dropout)
        self.encoder = nn.ModuleDict(
            {"layer": nn.ModuleList([Layer(width, heads, inner, dropout) for _ in range(layers)])}
        )
        self.pooler = nn.ModuleDict({"dense": nn.Linear(width, width)})
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, 0.0, 0.02)

    def forward(self, tokens, attention_mask=None, token_type_ids=None):
        mask = None if attention_mask is None else attention_mask.to(td.bool)[:, None, None, :]
        x = self.embeddings(tokens, token_type_ids)
        for layer in self.encoder["layer"]:
            x = layer(x, mask)
        return x, td.tanh(self.pooler["dense"](x[:, 0]))

    def load_published(self, state: dict, strict: bool = True):
        """Takes over weights as published: names may begin with "bert.", those of other tasks' heads and tables of positions are
        left out, and normalisation may be called gamma and beta.
        """
        inside = any(name.startswith("bert.") for name in state)
        taken = {}
        for name, value in state.items():
            if (inside and not name.startswith("bert.")) or name.endswith("position_ids"):
                continue
            name = name.removeprefix("bert.").replace("LayerNorm.gamma", "LayerNorm.weight")
            taken[name.replace("LayerNorm.beta", "LayerNorm.bias")] = value
        return self.load_state_dict(taken, strict=strict)
