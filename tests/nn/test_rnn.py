"""Recurrent layers."""

import numpy as np
import pytest

import tandem as td
import tandem.nn.functional as F
from tandem import nn
from tests.check import check_gradients

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.normal(size=shape)


# -- gradients of any order of what is defined here


@pytest.mark.parametrize("fn", [
    lambda x: F.interpolate(x, 7, mode="linear"),
    lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest"),
    lambda x: F.lp_pool1d(td.abs(x) + 0.5, 3.0, 2),
    lambda x: F.local_response_norm(x, 3, alpha=0.5),
])  # fmt: skip
def test_gradients_over_sequences(fn):
    check_gradients(fn, [normal(1, 4, 5)])


def test_gradients_of_recurrent_layers():
    for name in ("RNN", "LSTM", "GRU"):
        layer = getattr(nn, name)(2, 3, bidirectional=True).double()
        check_gradients(lambda x, layer=layer: layer(x)[0], [normal(3, 2, 2)])


@pytest.mark.parametrize("layer", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize("compiled", [False, True])
def test_layers_run_under_autocast(layer, compiled):
    td.manual_seed(0)
    made, x = layer(3, 4, num_layers=2), td.randn(5, 2, 3)

    def run(x):
        with td.autocast("cpu", dtype=td.bfloat16):
            return made(x)[0], made(nn.utils.rnn.pack_sequence([x[:, 0], x[:3, 1]]))[0].data

    expected = made(x)[0]
    out, packed = td.compile(run)(x) if compiled else run(x)
    assert out.dtype is td.float32 and td.allclose(out, expected, atol=0.05)
    assert packed.shape == (8, 4)
    out.sum().backward()
    assert all(td.isfinite(p.grad).all() for p in made.parameters())
