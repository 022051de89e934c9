"""Attention of several heads."""

import numpy as np

from tandem import nn
from tests.check import check_gradients

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.normal(size=shape)


def test_gradients_of_attention():
    layer = nn.MultiheadAttention(4, 2).double()
    for need in (True, False):
        check_gradients(lambda x, need=need: layer(x, x, x, need_weights=need)[0], [normal(3, 1, 4)])
