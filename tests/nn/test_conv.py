"""Convolution layers against loops over windows."""

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tests.check import assert_close


def by_loops(x, w, b, stride, padding, dilation, groups):
    """Every window of the padded images times every filter of its group."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    n, _, height, width = x.shape
    out_channels, per_group, k, _ = w.shape
    size = lambda length: (length - dilation * (k - 1) - 1) // stride + 1
    out = np.zeros((n, out_channels, size(height), size(width)))
    for o in range(out_channels):
        first = o // (out_channels // groups) * per_group
        for i in range(out.shape[2]):
            for j in range(out.shape[3]):
                rows = slice(i * stride, i * stride + dilation * (k - 1) + 1, dilation)
                columns = slice(j * stride, j * stride + dilation * (k - 1) + 1, dilation)
                window = x[:, first : first + per_group, rows, columns]
                out[:, o, i, j] = (window * w[o]).sum((1, 2, 3)) + b[o]
    return out


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 2), (1, 2, 2, 1), (3, 0, 1, 4)]
)
def test_conv2d_is_a_sum_over_windows(stride, padding, dilation, groups):
    layer = nn.Conv2d(4, 8, 3, stride, padding, dilation, groups)
    x = td.randn(2, 4, 9, 8)
    w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    assert_close(layer(x), by_loops(x.numpy(), w, b, stride, padding, dilation, groups), rtol=1e-4, atol=1e-5)


def test_same_padding_and_other_modes():
    x = td.arange(12.0).reshape(1, 1, 3, 4)
    assert nn.Conv2d(1, 2, 3, padding="same")(x).shape == (1, 2, 3, 4)
    layer = nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular", bias=False)
    with td.no_grad():
        layer.weight.fill_(1.0)
    around = np.pad(x.numpy()[0, 0], 1, mode="wrap")
    expected = sum(around[i : i + 3, j : j + 4] for i in range(3) for j in range(3))
    assert_close(layer(x)[0, 0], expected, rtol=1e-6)


def test_a_transposed_convolution_is_the_gradient_of_one():
    forward, back = nn.Conv2d(3, 5, 3, stride=2, bias=False), nn.ConvTranspose2d(5, 3, 3, stride=2, bias=False)
    back.load_state_dict(forward.state_dict())
    x = td.randn(1, 3, 9, 9, requires_grad=True)
    y = forward(x)
    g = td.randn(*y.shape)
    (expected,) = td.autograd.grad(y, x, g)
    assert_close(back(g), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_one_and_three_axes_have_the_sizes_of_the_formula():
    assert nn.Conv1d(2, 4, 5, stride=2)(td.ones(3, 2, 11)).shape == (3, 4, 4)
    assert nn.Conv3d(2, 4, 3, padding=1)(td.ones(1, 2, 4, 5, 6)).shape == (1, 4, 4, 5, 6)
    assert nn.ConvTranspose1d(2, 3, 4, stride=2, output_padding=1)(td.ones(1, 2, 5)).shape == (1, 3, 13)


def test_channels_that_do_not_divide_into_groups_are_named():
    with pytest.raises(ValueError, match="groups"):
        nn.Conv2d(3, 4, 3, groups=2)
    with pytest.raises(td.ShapeError, match="conv"):
        nn.Conv2d(3, 4, 3)(td.ones(1, 2, 5, 5))
