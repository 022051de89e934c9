import numpy as np
import pytest
import scipy.special as ss

import tandem as td
from tests.check import check_op

RNG = np.random.default_rng(23)


def weights(gates, inputs=3, hidden=2):
    return tuple(
        RNG.normal(size=s).astype(np.float32)
        for s in ((gates * hidden, inputs), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,))
    )


def state(batch=2, n=2):
    return RNG.normal(size=(batch, n)).astype(np.float32)


def parts(count, x, h, wi, wh, bi, bh):
    return np.split(x @ wi.T + bi, count, -1), np.split(h @ wh.T + bh, count, -1)


@pytest.mark.parametrize("name", ["rnn_tanh_cell", "rnn_relu_cell"])
def test_rnn(name):
    def reference(*args):
        (a,), (b,) = parts(1, *args)
        return np.tanh(a + b) if "tanh" in name else np.maximum(a + b, 0)

    check_op(getattr(td, name), reference, inputs=[(state(2, 3), state(), *weights(1))], rtol=1e-4, atol=1e-5)


def test_lstm():
    def reference(x, h, c, *w):
        i, f, g, o = (a + b for a, b in zip(*parts(4, x, h, *w), strict=True))
        cell = ss.expit(f) * c + ss.expit(i) * np.tanh(g)
        return ss.expit(o) * np.tanh(cell), cell

    check_op(lambda x, h, c, *w: td.lstm_cell(x, (h, c), *w), reference, inputs=[(state(2, 3), state(), state(), *weights(4))],
             names=["lstm_cell"], rtol=1e-4, atol=1e-5)  # fmt: skip


def test_gru():
    def reference(*args):
        (rx, zx, nx), (rh, zh, nh) = parts(3, *args)
        n, z = np.tanh(nx + ss.expit(rx + rh) * nh), ss.expit(zx + zh)
        return (1 - z) * n + z * args[1]

    check_op(td.gru_cell, reference, inputs=[(state(2, 3), state(), *weights(3))], rtol=1e-4, atol=1e-5)


def test_one_sample_and_errors():
    w = [td.tensor(a) for a in weights(4)]
    h, c = td.lstm_cell(td.ones(3), (td.zeros(2), td.zeros(2)), *w)
    assert h.shape == (2,) and c.shape == (2,)
    with pytest.raises(td.ShapeError, match="w_hh"):
        td.lstm_cell(td.ones(3), (td.zeros(2), td.zeros(2)), w[0], w[0])
