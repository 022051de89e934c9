"""Neural collaborative filtering (He et al., 2017): a product of factors beside a network over them."""

from __future__ import annotations

import itertools

import tandem as td
from tandem import nn


class NCF(nn.Module):
    """user, item: (n) whole numbers -> score (n)

    layers: sizes of the network; the first is twice the width of its embeddings.
    """

    def __init__(self, users: int, items: int, factors: int = 64, layers=(256, 256, 128, 64)):
        super().__init__()
        self.mf_user_embed, self.mf_item_embed = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.mlp_user_embed, self.mlp_item_embed = (
            nn.Embedding(users, layers[0] // 2),
            nn.Embedding(items, layers[0] // 2),
        )
        self.mlp = nn.ModuleList([nn.Linear(a, b) for a, b in itertools.pairwise(layers)])
        self.final = nn.Linear(layers[-1] + factors, 1)
        for m in self.modules():
            if isinstance(m, nn.Embedding):
                nn.init.normal_(m.weight, 0.0, 0.01)

    def forward(self, user, item):
        deep = td.cat([self.mlp_user_embed(user), self.mlp_item_embed(item)], -1)
        for layer in self.mlp:
            deep = layer(deep).relu()
        product = self.mf_user_embed(user) * self.mf_item_embed(item)
        return self.final(td.cat([product, deep], -1)).squeeze(-1)
