"""Pooling layers against windows that NumPy cuts."""

import numpy as np

import tandem as td
from tandem import nn
from tests.check import assert_close

X = np.random.default_rng(0).normal(size=(2, 3, 6, 8)).astype(np.float32)
WINDOWS = X.reshape(2, 3, 3, 2, 4, 2)  # 2 x 2, one beside the other


def test_maxima_and_means_of_windows():
    x = td.tensor(X)
    assert_close(nn.MaxPool2d(2)(x), WINDOWS.max((3, 5)), rtol=0)
    assert_close(nn.AvgPool2d(2)(x), WINDOWS.mean((3, 5)), rtol=1e-5, atol=1e-6)
    assert_close(nn.LPPool2d(2, 2)(x), np.sqrt((WINDOWS**2).sum((3, 5))), rtol=1e-5)
    assert_close(nn.MaxPool1d(2)(x[0]), X[0].reshape(3, 6, 4, 2).max(-1), rtol=0)


def test_unpooling_puts_maxima_where_they_were():
    pooled, places = nn.MaxPool2d(2, return_indices=True)(td.tensor(X))
    back = nn.MaxUnpool2d(2)(pooled, places).numpy()
    chosen = back != 0
    np.testing.assert_array_equal(back[chosen], X[chosen])
    assert chosen.sum() == pooled.numel()


def test_padding_counts_or_does_not():
    x = td.ones(1, 1, 2, 2)
    assert nn.AvgPool2d(3, 1, 1)(x)[0, 0, 0, 0].item() == np.float32(4 / 9)
    assert nn.AvgPool2d(3, 1, 1, count_include_pad=False)(x)[0, 0, 0, 0].item() == 1
    assert nn.AvgPool2d(3, 1, 1, divisor_override=2)(x)[0, 0, 0, 0].item() == 2
    assert nn.MaxPool2d(2, ceil_mode=True)(td.ones(1, 1, 5, 5)).shape == (1, 1, 3, 3)


def test_adaptive_pools_divide_evenly():
    x = td.tensor(X)
    assert_close(nn.AdaptiveAvgPool2d((3, 4))(x), WINDOWS.mean((3, 5)), rtol=1e-5, atol=1e-6)
    assert_close(nn.AdaptiveMaxPool2d((3, 4))(x), WINDOWS.max((3, 5)), rtol=0)
    assert_close(nn.AdaptiveAvgPool2d(1)(x)[..., 0, 0], X.mean((2, 3)), rtol=1e-5, atol=1e-6)
    assert nn.AdaptiveAvgPool2d((None, 2))(x).shape == (2, 3, 6, 2)
