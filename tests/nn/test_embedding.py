"""Embeddings."""

import numpy as np

import tandem as td
from tandem import nn

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.normal(size=shape)


def test_pretrained_embeddings():
    table = td.tensor(normal(4, 2))
    layer = nn.Embedding.from_pretrained(table)
    assert not layer.weight.requires_grad and layer(td.tensor([1])).tolist() == [table[1].tolist()]
    assert nn.EmbeddingBag.from_pretrained(table, freeze=False, mode="sum").weight.requires_grad
    assert nn.Embedding(4, 2, padding_idx=-1).weight[3].tolist() == [0.0, 0.0]
