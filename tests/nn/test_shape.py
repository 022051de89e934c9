"""Layers that change shapes alone."""

import numpy as np

import tandem as td
from tandem import nn


def test_flatten_and_back():
    x = td.arange(24).reshape(2, 3, 4)
    assert nn.Flatten()(x).shape == (2, 12) and nn.Flatten(0, 1)(x).shape == (6, 4)
    assert td.array_equal(nn.Unflatten(1, (3, 4))(nn.Flatten()(x)), x)


def test_pixels_are_shuffled_into_space_and_back():
    x = td.arange(2 * 8 * 3 * 2).reshape(2, 8, 3, 2)
    y = nn.PixelShuffle(2)(x)
    expected = x.numpy().reshape(2, 2, 2, 2, 3, 2).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 4)
    np.testing.assert_array_equal(y.numpy(), expected)
    assert td.array_equal(nn.PixelUnshuffle(2)(y), x)


def test_channels_of_groups_are_interleaved():
    x = td.arange(6).reshape(1, 6, 1, 1)
    assert nn.ChannelShuffle(2)(x).reshape(-1).tolist() == [0, 3, 1, 4, 2, 5]


def test_upsampling_repeats_or_interpolates():
    x = td.tensor([[[[0.0, 2.0], [4.0, 6.0]]]])
    np.testing.assert_array_equal(
        nn.Upsample(scale_factor=2)(x)[0, 0].numpy(), np.kron(x.numpy()[0, 0], np.ones((2, 2)))
    )
    smooth = nn.Upsample(size=(3, 3), mode="bilinear", align_corners=True)(x)
    assert smooth[0, 0].tolist() == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]


def test_folding_adds_up_what_windows_share():
    x = td.randn(1, 2, 4, 4)
    columns = nn.Unfold(2)(x)
    assert columns.shape == (1, 8, 9)
    back = nn.Fold((4, 4), 2)(columns)
    counts = np.outer([1, 2, 2, 1], [1, 2, 2, 1])
    np.testing.assert_allclose(back.numpy(), x.numpy() * counts, rtol=1e-6)
