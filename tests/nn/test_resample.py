"""Images made larger and smaller."""

import numpy as np
import pytest

import tandem as td
import tandem.nn.functional as F
from tests.check import assert_close, check_op

RNG = np.random.default_rng(2)


def test_antialias_keeps_the_mean_and_constants():
    image = RNG.normal(size=(1, 1, 12, 12))
    for mode in ("bilinear", "bicubic"):
        small = F.interpolate(td.tensor(image), (3, 4), mode=mode, antialias=True)
        assert abs(float(small.mean()) - image.mean()) < 0.15
        flat = F.interpolate(td.full((1, 1, 9, 9), 2.0), (4, 2), mode=mode, antialias=True)
        assert_close(flat, np.full((1, 1, 4, 2), 2.0))
    check_op(lambda x: F.interpolate(x, (3, 2), mode="bilinear", antialias=True),
             lambda x: np.asarray(F.interpolate(td.tensor(x), (3, 2), mode="bilinear", antialias=True)),
             inputs=[(RNG.normal(size=(1, 2, 5, 4)),)], names=["interpolate"], deferred=False)  # fmt: skip
    with pytest.raises(td.errors.ValueRangeError, match="antialias"):
        F.interpolate(td.zeros(1, 1, 4, 4), 2, mode="nearest", antialias=True)


def test_interpolate_rounds_bytes():
    x = (td.arange(16).reshape(1, 1, 4, 4) * 10).to(td.uint8)
    made = F.interpolate(x, size=(3, 3), mode="bilinear")
    assert made.dtype is td.uint8
    exact = F.interpolate(x.float(), size=(3, 3), mode="bilinear")
    assert float((made.float() - exact).abs().max()) <= 0.5
    assert F.interpolate(td.full((1, 1, 4, 4), 255, dtype=td.uint8), (7, 7), mode="bicubic").unique().tolist() == [255]


def test_interpolate_of_other_integers_copies_or_refuses():
    x = td.arange(16).reshape(1, 1, 4, 4) + 2**60
    assert F.interpolate(x, size=(3, 3))[0, 0, 0].tolist() == [2**60, 2**60 + 1, 2**60 + 2]
    for mode in ("bilinear", "bicubic", "area"):
        with pytest.raises(NotImplementedError, match="interpolate"):
            F.interpolate(x, size=(3, 3), mode=mode)
