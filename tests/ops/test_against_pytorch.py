"""Corners that random comparison with PyTorch found; the expected numbers are PyTorch's."""

import numpy as np

import tandem as td
from tests.check import assert_close

RNG = np.random.default_rng(5)


def test_python_numbers_among_unsigned_integers_keep_their_sign():
    x = td.tensor([3, 1], dtype=td.uint8)
    assert td.copysign(x, -1).tolist() == [-3.0, -1.0]
    assert np.isnan(td.xlogy(x, -1).numpy()).all()
    assert_close(td.atan2(x, -1), np.arctan2([3.0, 1.0], -1.0), rtol=1e-6)


def test_complex_numbers_in_logcumsumexp_and_sinc():
    z = RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))
    assert_close(td.exp(td.logcumsumexp(td.tensor(z), 1)), np.cumsum(np.exp(z), 1), rtol=1e-10)
    assert_close(td.sinc(td.tensor(z)), np.sinc(z), rtol=1e-10)
    assert td.sinc(td.tensor([0j])).tolist() == [1]
    x = td.tensor(z, requires_grad=True)
    td.logcumsumexp(x, 0).real.sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_squares_of_booleans_are_integers():
    assert td.square(td.tensor([True, False])).dtype is td.int64
