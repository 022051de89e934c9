"""Convolutions of frozen models on several threads: one part of the images for each (src/library/conv_parts.cc)."""

from __future__ import annotations

import numpy as np
import pytest

import tandem as td
import tandem.nn.functional as NF


@pytest.fixture(params=[2, 3])
def threads(request):
    before = td.get_num_threads()
    td.set_num_threads(request.param)
    yield request.param
    td.set_num_threads(before)


class Pair(td.nn.Module):
    """Two convolutions, the second with a residual."""

    def __init__(self, channels: int, **options):
        super().__init__()
        self.first = td.nn.Conv2d(channels, channels, **options)
        self.second = td.nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        y = NF.relu(self.first(x))
        return NF.silu(self.second(y) + y)


@pytest.mark.parametrize("batch", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "padding": 1}, {"kernel_size": 3, "stride": 2}, {"kernel_size": 5, "padding": 4, "dilation": 2},
        {"kernel_size": (1, 7), "padding": (0, 3)}, {"kernel_size": 1}, {"kernel_size": 3, "padding": 1, "groups": 32},
        {"kernel_size": 4, "padding": 3, "stride": 3},
    ],
)  # fmt: skip
def test_images_and_rows(threads, options, batch):
    td.manual_seed(0)
    model = Pair(32, **options).eval()
    x = td.randn(batch, 32, 53, 47)
    frozen = td.export.freeze(model, x)
    expected = model(x).detach().numpy()
    for _ in range(2):  # the second call uses packed weights
        np.testing.assert_allclose(frozen(x).numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 32, 1, 4000), (1, 32, 4000, 1)])
def test_images_of_one_row_or_column(threads, shape):
    td.manual_seed(0)
    model = td.nn.Conv2d(32, 32, 3, padding=1).eval()
    x = td.randn(*shape)
    np.testing.assert_allclose(td.export.freeze(model, x)(x).numpy(), model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_rows_that_are_all_padding(threads):
    td.manual_seed(0)
    model = td.nn.Conv2d(64, 64, 2, padding=(30, 0)).eval()
    x = td.randn(1, 64, 2, 300)
    np.testing.assert_allclose(td.export.freeze(model, x)(x).numpy(), model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


class Residual(td.nn.Module):
    """Convolutions that Winograd's method is quicker for, with what may follow them."""

    def __init__(self, channels: int, activation):
        super().__init__()
        self.first = td.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = td.nn.Conv2d(channels, channels, 3, padding=(0, 2))
        self.third = td.nn.Conv2d(channels, channels, 3, padding=1)
        self.activation = activation

    def forward(self, x):
        y = self.second(self.activation(self.first(x)))
        return self.activation(self.third(y) + y)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "activation", [NF.relu, NF.relu6, lambda x: NF.leaky_relu(x, 0.1), NF.silu, lambda x: x], ids=range(5)
)
def test_winograd_with_what_follows(count, activation):
    before = td.get_num_threads()
    td.set_num_threads(count)
    try:
        td.manual_seed(0)
        model = Residual(64, activation).eval()
        frozen = td.export.freeze(model, td.randn(2, 64, 29, 31))
        for batch in (1, 4, 1, 3):  # weights are kept for each way of computing
            x = td.randn(batch, 64, 29, 31)
            np.testing.assert_allclose(frozen(x).numpy(), model(x).detach().numpy(), rtol=1e-4, atol=1e-4)
    finally:
        td.set_num_threads(before)
