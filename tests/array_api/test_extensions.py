"""The extensions linalg and fft: names, parameters and results as the standard has them."""

import inspect

import numpy as np
import pytest

import tandem as td
from tests.array_api.standard import FFT, LINALG
from tests.array_api.test_signatures import fits


@pytest.mark.parametrize(("name", "wanted"), LINALG.items())
def test_linalg(name, wanted):
    fits(name, inspect.signature(getattr(td.linalg, name)), wanted)


@pytest.mark.parametrize(("name", "wanted"), FFT.items())
def test_fft(name, wanted):
    fits(name, inspect.signature(getattr(td.fft, name)), wanted)


def test_results_with_several_parts_are_named():
    x = td.tensor([[2.0, 1.0], [1.0, 3.0]])
    assert td.linalg.eigh(x)._fields == td.linalg.eig(x)._fields == ("eigenvalues", "eigenvectors")
    assert td.linalg.qr(x)._fields == ("Q", "R")
    assert td.linalg.slogdet(x)._fields == ("sign", "logabsdet")
    assert td.linalg.svd(x)._fields == ("U", "S", "Vh")


def test_types_of_results():
    for dtype, part in (
        (td.float32, td.float32),
        (td.float64, td.float64),
        (td.complex64, td.float32),
        (td.complex128, td.float64),
    ):
        x = td.eye(3, dtype=dtype)
        for name in ("cholesky", "det", "inv", "pinv"):
            assert getattr(td.linalg, name)(x).dtype is dtype
        for name in ("eigvalsh", "matrix_norm", "svdvals", "vector_norm"):
            assert getattr(td.linalg, name)(x).dtype is part
        assert td.linalg.eigvals(x).dtype.is_complex
        assert td.linalg.matrix_rank(x).dtype is td.int64
        assert td.fft.fft(x).dtype is (td.complex64 if part is td.float32 else td.complex128)
        assert td.fft.irfft(x).dtype is part


def test_tolerances_may_be_arrays():
    x = td.tensor(np.stack([np.diag([1.0, 0.1]), np.diag([1.0, 0.1])]))
    assert td.linalg.matrix_rank(x, rtol=td.tensor([0.5, 0.01], dtype=td.float64)).tolist() == [1, 2]
    made = td.linalg.pinv(x, rtol=td.tensor([0.5, 0.01], dtype=td.float64))
    np.testing.assert_allclose(made.numpy()[:, 1, 1], [0.0, 10.0])
