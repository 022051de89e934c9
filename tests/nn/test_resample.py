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
    assert float((made.float() - exact).abs().max()) <= 1.0  # rounded after each axis
    assert F.interpolate(td.full((1, 1, 4, 4), 255, dtype=td.uint8), (7, 7), mode="bicubic").unique().tolist() == [255]


def test_interpolate_of_other_integers_copies_or_refuses():
    x = td.arange(16).reshape(1, 1, 4, 4) + 2**60
    assert F.interpolate(x, size=(3, 3))[0, 0, 0].tolist() == [2**60, 2**60 + 1, 2**60 + 2]
    for mode in ("bilinear", "bicubic", "area"):
        with pytest.raises(NotImplementedError, match="interpolate"):
            F.interpolate(x, size=(3, 3), mode=mode)


def resized_bytes(x, size, weights_of):
    """Along the last axis first, weights rounded to 16 bits, bytes after each axis."""
    for axis in (1, 0):
        weights = weights_of(x.shape[axis], size[axis])
        bits = next(p for p in range(23) if p == 22 or int(0.5 + weights.max() * 2 ** (p + 1)) >= 2**15)
        whole = np.trunc(weights * 2**bits + np.where(weights < 0, -0.5, 0.5)).astype(np.int64)
        x = np.moveaxis(np.clip((np.tensordot(whole, x, (1, axis)) + 2 ** (bits - 1)) >> bits, 0, 255), 0, axis)
    return x


def linear_weights(n, m):
    at = np.maximum((np.arange(m) + 0.5) * n / m - 0.5, 0)
    return np.maximum(1 - np.abs(np.minimum(at, n - 1)[:, None] - np.arange(n)), 0)


def test_bytes_are_resized_as_image_libraries_do():
    image = RNG.integers(0, 256, size=(9, 13))
    for size in ((7, 5), (20, 17), (9, 30)):
        made = F.interpolate(td.tensor(image, dtype=td.uint8)[None, None], size, mode="bilinear")
        assert made.dtype is td.uint8
        assert (made[0, 0].numpy() == resized_bytes(image, size, linear_weights)).all()


def test_halves_of_bytes_are_rounded_up():
    x = td.tensor([[[[0, 1], [0, 1]]]], dtype=td.uint8)
    assert F.interpolate(x, (1, 1), mode="bilinear").item() == 1
    assert F.interpolate(x, (1, 1), mode="bilinear", antialias=True).item() == 1
    flat = td.full((1, 1, 90, 3), 200, dtype=td.uint8)  # many weights: a matrix
    assert (F.interpolate(flat, (2, 3), mode="bicubic", antialias=True) == 200).all()
