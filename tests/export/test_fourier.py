"""Fourier transforms in exported functions, along axes of fixed and free sizes."""

import numpy as np
import pytest

import tandem as td
from tests.onnx.writers.roundtrip import check_save, flat


def spectra(x):
    f = td.fft.rfft(x)
    z = td.fft.fft2(x, norm="ortho")
    halves = td.fft.ihfft(x[0], norm="forward"), td.fft.hfft(z)
    return td.view_as_real(f), td.fft.irfft(f, n=x.shape[1]), td.fft.ifft(z, axis=0).real, halves[0].imag, halves[1]


@pytest.mark.parametrize("size", [2, 7, 8, 30])
def test_files_have_the_spectra_of_this_library(size):
    check_save(spectra, td.randn(4, size), whole_batches=False, dynamic=False)


def test_sizes_may_be_free():
    proto = td.onnx.save(spectra, td.randn(3, 6), dynamic={"x": (0, 1)})
    loaded = td.onnx.load(proto)
    for shape in [(3, 6), (2, 7), (5, 16), (1, 2)]:
        x = td.randn(*shape)
        for expected, made in zip(flat(spectra(x)), flat(loaded(x)), strict=True):
            np.testing.assert_allclose(made.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_other_sizes_than_powers_of_two_keep_their_digits():
    """The DFT of onnxruntime is off by a thousandth for 3,000 elements."""
    proto = td.onnx.save(lambda x: td.view_as_real(td.fft.fft(x)), td.randn(1, 1000), dynamic=False)
    assert "DFT" not in {node.op_type for node in proto.graph.node}
    proto = td.onnx.save(lambda x: td.view_as_real(td.fft.fft(x)), td.randn(1, 1024), dynamic=False)
    assert "DFT" in {node.op_type for node in proto.graph.node}


def test_gradients_of_transforms():
    def power(v):
        return (abs(td.fft.rfft(v)) ** 2).sum() + td.fft.irfft(v * (1 + 2j), n=9).sum()

    check_save(lambda x: td.grad(power)(x), td.randn(3, 5))
