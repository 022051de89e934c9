"""Llama (Touvron et al., 2023; Grattafiori et al., 2024): rotary positions, grouped-query attention, RMS norms, SwiGLU.

Weights are named as in the published safetensors files; those of GGUF files are renamed. Mistral and Qwen2, which differ in a
bias, load too.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import tandem as td
from tandem import nn
from tandem.errors import CheckpointError, ValueRangeError
from tandem.generation import generate, stream
from tandem.models.gguf_names import settings_of_gguf, weights_of_gguf
from tandem.nn import functional as F


def rotary_frequencies(width: int, base: float, scaling: dict | None = None):
    """(width / 2) angles per position. scaling: as in published configurations, of types "linear" and "llama3"."""
    frequencies = base ** (-td.arange(0, width, 2).to(td.float32) / width)
    kind = (scaling or {}).get("rope_type", (scaling or {}).get("type", "default"))
    if kind == "default":
        return frequencies
    factor = float(scaling["factor"])
    if kind == "linear":
        return frequencies / factor
    if kind == "llama3":  # slow angles are slowed further, fast ones stay
        low, high, old = (
            float(scaling[k]) for k in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        )
        turns = old * frequencies / (2 * math.pi)
        share = ((turns - low) / (high - low)).clamp(0.0, 1.0)
        return (1 - share) * frequencies / factor + share * frequencies
    raise ValueRangeError("Llama", f"rotary positions are scaled by {kind!r}; 'linear' and 'llama3' are known")


def rotate(x, cos, sin):
    """x (n, heads, t, d) turned by angles (n, 1, t, d / 2): element i together with element i + d / 2."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return td.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int, head_width: int, bias: bool):
        super().__init__()
        self.heads, self.kv_heads, self.head_width = heads, kv_heads, head_width
        self.q_proj = nn.Linear(width, heads * head_width, bias=bias)
        self.k_proj = nn.Linear(width, kv_heads * head_width, bias=bias)
        self.v_proj = nn.Linear(width, kv_heads * head_width, bias=bias)
        self.o_proj = nn.Linear(heads * head_width, width, bias=False)

    def forward(self, x, turns, cache=None, layer: int = 0):
        b, t, _ = x.shape
        q = self.q_proj(x).reshape(b, t, self.heads, self.head_width).permute(0, 2, 1, 3)
        k = self.k_proj(x).reshape(b, t, self.kv_heads, self.head_width).permute(0, 2, 1, 3)
        v = self.v_proj(x).reshape(b, t, self.kv_heads, self.head_width).permute(0, 2, 1, 3)
        q, k = rotate(q, *turns), rotate(k, *turns)
        mask = None
        if cache is not None:
            k, v = cache.extend(layer, k, v)
            mask = cache.mask
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=self.heads != self.kv_heads
        )
        return self.o_proj(y.permute(0, 2, 1, 3).reshape(b, t, self.heads * self.head_width))


class MLP(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int, head_width: int, hidden: int, eps: float, bias: bool):
        super().__init__()
        self.self_attn, self.mlp = Attention(width, heads, kv_heads, head_width, bias), MLP(width, hidden)
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(width, eps=eps), nn.RMSNorm(width, eps=eps)

    def forward(self, x, turns, cache=None, layer: int = 0):
        x = x + self.self_attn(self.input_layernorm(x), turns, cache, layer)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """tokens: (n, t) whole numbers -> scores of the next tokens (n, t, vocabulary)

    kv_heads: keys and values that groups of heads share; as many as heads by default. tied: scores are products with embeddings.

    >>> model = td.models.Llama(vocabulary=100, layers=2, heads=4, kv_heads=2, width=16, hidden=32).eval()
    >>> model(td.zeros(1, 5, dtype=td.int64)).shape
    (1, 5, 100)
    >>> model.generate([[1, 2, 3], [4]], 2, temperature=0)[1][0]
    4
    """

    def __init__(self, vocabulary: int = 32000, context: int = 2048, layers: int = 22, heads: int = 32, kv_heads: int | None = None,
                 width: int = 2048, hidden: int = 5632, head_width: int | None = None, base: float = 10000.0, eps: float = 1e-5,
                 tied: bool = False, bias: bool = False, scaling: dict | None = None):  # fmt: skip
        super().__init__()
        kv_heads, head_width = kv_heads or heads, head_width or width // heads
        if heads % kv_heads or head_width % 2:
            raise ValueRangeError(
                "Llama", f"{heads} heads of width {head_width} cannot share {kv_heads} key heads, or turn in pairs"
            )
        self.vocabulary, self.context, self.cache_sizes = vocabulary, context, (layers, kv_heads, head_width)
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(vocabulary, width),
            "layers": nn.ModuleList([Layer(width, heads, kv_heads, head_width, hidden, eps, bias) for _ in range(layers)]),
            "norm": nn.RMSNorm(width, eps=eps),
        })  # fmt: skip
        self.lm_head = None if tied else nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("frequencies", rotary_frequencies(head_width, base, scaling), persistent=False)
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, 0.0, 0.02)

    def hidden(self, tokens, cache=None):
        """The last layer's activations (n, t, width). With a cache, tokens are at its positions, and go on from what it holds."""
        positions = td.arange(tokens.shape[1])[None] if cache is None else cache.positions
        x = self.model["embed_tokens"](tokens)
        angles = positions[:, None, :, None].to(td.float32) * self.frequencies
        turns = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for i, layer in enumerate(self.model["layers"]):
            x = layer(x, turns, cache, i)
        return self.model["norm"](x)

    def scores(self, hidden):
        return F.linear(hidden, self.model["embed_tokens"].weight) if self.lm_head is None else self.lm_head(hidden)

    def untie(self):
        """Makes the product with embeddings a layer of its own, `lm_head`, of the same weights; td.quantize begins with it."""
        if self.lm_head is None:
            weight = self.model["embed_tokens"].weight
            self.lm_head = nn.Linear(
                weight.shape[1], weight.shape[0], bias=False, device=weight.device, dtype=weight.dtype
            )
            self.lm_head.weight = weight

    def forward(self, tokens):
        return self.scores(self.hidden(tokens))

    def generate(self, tokens, count: int, **settings):
        """Prompts with `count` more tokens; settings as of td.generation.generate."""
        return generate(self, tokens, count, **settings)

    def stream(self, tokens, count: int, **settings):
        """The tokens of `generate` as they are made; settings as of td.generation.stream."""
        return stream(self, tokens, count, **settings)

    def load_published(self, state: dict, strict: bool = True):
        """Takes over weights of published safetensors files, or of a GGUF file by its names."""
        if any(name.startswith(("blk.", "token_embd.")) for name in state):
            state = weights_of_gguf(state, self.model["layers"][0].self_attn)
        taken = {name: value for name, value in state.items() if not name.endswith("rotary_emb.inv_freq")}
        if self.lm_head is None:
            taken.pop("lm_head.weight", None)
        return self.load_state_dict(taken, strict=strict)

    @classmethod
    def from_config(cls, config: dict, **settings) -> Llama:
        """A model of random weights with the sizes of a published config.json."""
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        found = {
            "vocabulary": config["vocab_size"], "context": config["max_position_embeddings"], "layers": config["num_hidden_layers"],
            "heads": config["num_attention_heads"], "kv_heads": config.get("num_key_value_heads"), "width": config["hidden_size"],
            "hidden": config["intermediate_size"], "head_width": config.get("head_dim"),
            "base": float(config.get("rope_theta") or rope.get("rope_theta", 10000.0)), "eps": config["rms_norm_eps"],
            "tied": config.get("tie_word_embeddings", False),
            "bias": config.get("attention_bias", config.get("model_type") == "qwen2"), "scaling": rope or None,
        }  # fmt: skip
        return cls(**{**found, **settings})

    @classmethod
    def from_pretrained(cls, path, **settings) -> Llama:
        """A model from a folder with config.json and safetensors files, or from a GGUF file; nothing is downloaded."""
        path = Path(path)
        if path.is_dir():
            files = sorted(path.glob("*.safetensors"))
            if not files or not (path / "config.json").exists():
                raise CheckpointError("Llama", f"{path} has no config.json or no safetensors files")
            model = cls.from_config(json.loads((path / "config.json").read_text()), **settings)
            state = {name: value for file in files for name, value in td.load(file).items()}
        else:
            found, state = settings_of_gguf(path)
            model = cls(**{**found, **settings})
        model.load_published(state)
        return model.eval()
