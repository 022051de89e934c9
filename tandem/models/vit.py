"""Vision transformer (Dosovitskiy et al., 2021). Names of weights as in torchvision."""

from __future__ import annotations

import tandem as td
from tandem import nn


class EncoderBlock(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, dropout: float):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, dropout=dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.mlp = nn.Sequential(
            nn.Linear(width, inner), nn.GELU(), nn.Dropout(dropout), nn.Linear(inner, width), nn.Dropout(dropout)
        )

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.dropout(self.self_attention(y, y, y, need_weights=False)[0])
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    def __init__(self, length: int, width: int, layers: int, heads: int, inner: int, dropout: float):
        super().__init__()
        self.pos_embedding = nn.Parameter(td.randn(1, length, width) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleDict(
            {f"encoder_layer_{i}": EncoderBlock(width, heads, inner, dropout) for i in range(layers)}
        )
        self.ln = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x):
        x = self.dropout(x + self.pos_embedding)
        for layer in self.layers.values():
            x = layer(x)
        return self.ln(x)


class ViT(nn.Module):
    """x: (n, 3, image_size, image_size) -> scores (n, classes)"""

    def __init__(self, image_size: int = 224, patch_size: int = 16, width: int = 768, layers: int = 12, heads: int = 12,
                 inner: int = 3072, num_classes: int = 1000, dropout: float = 0.0, channels: int = 3):  # fmt: skip
        super().__init__()
        self.conv_proj = nn.Conv2d(channels, width, patch_size, patch_size)
        self.class_token = nn.Parameter(td.zeros(1, 1, width))
        length = (image_size // patch_size) ** 2 + 1
        self.encoder = Encoder(length, width, layers, heads, inner, dropout)
        self.heads = nn.ModuleDict({"head": nn.Linear(width, num_classes)})

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).permute(0, 2, 1)
        x = td.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1)
        return self.heads["head"](self.encoder(x)[:, 0])


def vit_b_16(**settings) -> ViT:
    """The base model with patches of 16 x 16."""
    return ViT(**settings)


def vit_b_32(**settings) -> ViT:
    """The base model with patches of 32 x 32."""
    return ViT(**{"patch_size": 32, **settings})


def vit_l_16(**settings) -> ViT:
    """The large model with patches of 16 x 16."""
    return ViT(**{"width": 1024, "layers": 24, "heads": 16, "inner": 4096, **settings})
