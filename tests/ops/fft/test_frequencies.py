"""Frequencies of transforms, and shifts of them."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_gradients

X = td.fft


rng = np.random.default_rng(0)


def real(*shape, dtype="float64"):
    return rng.normal(size=shape).astype(dtype)


def test_frequencies():
    for n in (1, 4, 5):
        np.testing.assert_allclose(X.fftfreq(n, d=0.5, dtype=td.float64).numpy(), np.fft.fftfreq(n, 0.5))
        np.testing.assert_allclose(X.rfftfreq(n, dtype=td.float64).numpy(), np.fft.rfftfreq(n))
    assert X.fftfreq(3).dtype is td.float32
    with pytest.raises(td.ShapeError, match="at least 1"):
        X.fftfreq(0)


def test_shifts():
    for shape in ((4,), (5,), (3, 4), (1, 2)):
        x = real(*shape)
        for axes in (None, 0, (len(shape) - 1,)):
            np.testing.assert_array_equal(X.fftshift(td.tensor(x), axes=axes).numpy(), np.fft.fftshift(x, axes=axes))
            np.testing.assert_array_equal(X.ifftshift(td.tensor(x), axes=axes).numpy(), np.fft.ifftshift(x, axes=axes))
    check_gradients(X.fftshift, [real(3, 2)])
