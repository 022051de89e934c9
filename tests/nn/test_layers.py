"""Layers without PyTorch at hand: shapes, options, modes, gradients of any order, errors. tests/oracle compares their values."""

import numpy as np
import pytest

import tandem as td
import tandem.nn.functional as F
from tandem import nn
from tests.check import check_gradients

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.normal(size=shape)


@pytest.mark.parametrize(("make", "text"), [
    (lambda: nn.Conv2d(3, 4, 3, groups=2), "groups"),
    (lambda: nn.Conv2d(3, 4, 3, padding="some"), "'same'"),
    (lambda: nn.Conv2d(3, 4, 3, padding="same", stride=2), "stride 1"),
    (lambda: nn.Conv2d(3, 4, 3, padding_mode="odd"), "padding_mode"),
    (lambda: nn.Conv2d(3, 4, (3, 3, 3)), "one or 2"),
    (lambda: nn.ConvTranspose1d(1, 1, 2, padding_mode="reflect"), "zeros"),
    (lambda: nn.ConvTranspose1d(1, 1, 2, stride=2)(td.ones(1, 1, 3), output_size=(9,)), "can be 6 to 7"),
    (lambda: nn.GroupNorm(2, 3), "groups"),
    (lambda: nn.Embedding(3, 2, padding_idx=5), "outside"),
    (lambda: nn.Embedding(3, 2, _weight=td.ones(2, 2)), "must be"),
    (lambda: nn.MultiheadAttention(5, 2), "heads"),
    (lambda: nn.LSTM(2, 2, dropout=2), "probability"),
    (lambda: nn.RNN(2, 2, nonlinearity="sin"), "nonlinearity"),
    (lambda: nn.LSTM(2, 3)(td.ones(4, 1, 5)), r"\(L, N, I\)"),
    (lambda: nn.GRU(2, 3)(td.ones(4, 1, 2), td.ones(1, 2, 3)), "initial state"),
    (lambda: nn.TransformerEncoderLayer(4, 2, activation="sin"), "activation"),
    (lambda: nn.Hardtanh(1.0, 0.0), "smaller"),
    (lambda: nn.ZeroPad2d((1, 2)), "one number or 4"),
    (lambda: nn.Upsample()(td.ones(1, 1, 2)), "either size or scale_factor"),
    (lambda: F.interpolate(td.ones(1, 1, 2), 3, mode="bilinear"), "4 axes"),
    (lambda: F.interpolate(td.ones(1, 1, 2), 3, mode="cubic"), "mode"),
    (lambda: F.pixel_shuffle(td.ones(1, 3, 2, 2), 2), "divide"),
    (lambda: F.embedding_bag(td.tensor([1, 2]), td.ones(3, 2)), "offsets"),
    (lambda: F.embedding_bag(td.tensor([[1, 2]]), td.ones(3, 2), mode="min"), "mode"),
    (lambda: F.unfold(td.ones(1, 1, 2, 2), 3), "does not fit"),
    (lambda: F.fold(td.ones(1, 4, 3), (3, 3), 2), "must be"),
])  # fmt: skip
def test_mistakes_are_explained(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_factory_arguments():
    for layer in (
        nn.Linear(2, 3, dtype=td.float64, device="cpu"),
        nn.Conv2d(1, 1, 1, dtype=td.float64),
        nn.LSTM(2, 3, dtype=td.float64),
        nn.BatchNorm2d(2, dtype=td.float64),
        nn.MultiheadAttention(4, 2, dtype=td.float64),
        nn.Transformer(4, 2, 1, 1, 8, dtype=td.float64),
    ):
        assert all(p.dtype is td.float64 for p in layer.parameters())
    with pytest.raises(td.DeviceError):
        nn.Linear(2, 3, device="moon")


def test_new_sizes_need_no_new_plans():
    """Layers over sizes that change from call to call: plans are made for kinds of shapes, not for shapes."""
    layer = nn.LSTM(3, 4)
    from tandem.nn.steps import lstm_step

    layer(td.ones(2, 2, 3))
    before = lstm_step.num_plans
    for length, batch in ((3, 5), (7, 4), (2, 9)):
        layer(td.ones(length, batch, 3))
    assert lstm_step.num_plans == before


@pytest.mark.parametrize("fn", [
    lambda x: F.interpolate(x, (5, 3), mode="bicubic", align_corners=True),
    lambda x: F.unfold(x, 2, padding=1, stride=2),
    lambda x: F.fold(F.unfold(x, 2), (3, 4), 2) * x,
    lambda x: F.pixel_unshuffle(F.pixel_shuffle(x * x, 2), 2),
    lambda x: F.channel_shuffle(x * x, 2),
])  # fmt: skip
def test_gradients_over_images(fn):
    check_gradients(fn, [normal(1, 4, 3, 4)])
