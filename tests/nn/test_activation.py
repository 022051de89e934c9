"""Activations as layers: each is its formula, with its settings."""

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tests.check import assert_close

X = np.array([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 4.0, 7.0])
positive, negative = np.maximum(X, 0), np.minimum(X, 0)

FORMULAS = [
    (nn.ReLU6(), np.clip(X, 0, 6)),
    (nn.LeakyReLU(0.2), positive + 0.2 * negative),
    (nn.ELU(1.5), positive + 1.5 * np.expm1(negative)),
    (nn.CELU(2.0), positive + 2 * np.expm1(negative / 2)),
    (nn.Hardtanh(-2, 3), np.clip(X, -2, 3)),
    (nn.Hardsigmoid(), np.clip(X / 6 + 0.5, 0, 1)),
    (nn.Hardswish(), X * np.clip(X / 6 + 0.5, 0, 1)),
    (nn.Hardshrink(0.5), np.where(np.abs(X) > 0.5, X, 0)),
    (nn.Softshrink(0.5), np.sign(X) * np.maximum(np.abs(X) - 0.5, 0)),
    (nn.Threshold(0.5, -9.0), np.where(X > 0.5, X, -9)),
    (nn.Softplus(2.0), np.logaddexp(2 * X, 0) / 2),
    (nn.Softsign(), X / (1 + np.abs(X))),
    (nn.SiLU(), X / (1 + np.exp(-X))),
    (nn.Mish(), X * np.tanh(np.logaddexp(X, 0))),
    (nn.GELU("tanh"), 0.5 * X * (1 + np.tanh(np.sqrt(2 / np.pi) * (X + 0.044715 * X**3)))),
    (nn.LogSigmoid(), -np.logaddexp(-X, 0)),
    (nn.Tanhshrink(), X - np.tanh(X)),
    (nn.GLU(), X[:4] / (1 + np.exp(-X[4:]))),
    (nn.Softmin(-1), np.exp(-X) / np.exp(-X).sum()),
]


@pytest.mark.parametrize(
    ("layer", "expected"), FORMULAS, ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else ""
)
def test_layers_are_their_formulas(layer, expected):
    assert_close(layer(td.tensor(X)), expected, rtol=1e-6, atol=1e-9)


def test_inplace_is_accepted_and_the_input_stays():
    x = td.tensor([-1.0, 2.0])
    layer = nn.ReLU(inplace=True)
    assert layer(x).tolist() == [0.0, 2.0] and x.tolist() == [-1.0, 2.0]
    assert repr(layer) == "ReLU(inplace=True)"


def test_prelu_learns_a_slope_for_each_channel():
    layer = nn.PReLU(2, init=0.1)
    x = td.tensor([[[-1.0, -2.0], [3.0, -4.0]]])
    layer(x).sum().backward()
    assert layer.weight.grad.tolist() == [-3.0, -4.0]


def test_softmax_of_images_is_over_channels():
    made = nn.Softmax2d()(td.randn(2, 3, 4, 4))
    np.testing.assert_allclose(made.sum(1).numpy(), np.ones((2, 4, 4)), rtol=1e-5)
    with pytest.raises((td.ShapeError, ValueError)):
        nn.Softmax2d()(td.ones(2, 3))
