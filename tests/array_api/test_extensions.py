"""The extensions linalg and fft: names, parameters and results as the standard has them."""

import inspect

import numpy as np
import pytest

import tandem as td
from tests.array_api.standard import parse
from tests.array_api.test_signatures import fits

LINALG = """
cholesky(x, /, *, upper=False)
cross(x1, x2, /, *, axis=-1)
det(x, /)
diagonal(x, /, *, offset=0)
eig(x, /)
eigh(x, /)
eigvals(x, /)
eigvalsh(x, /)
inv(x, /)
matmul(x1, x2, /)
matrix_norm(x, /, *, keepdims=False, ord="fro")
matrix_power(x, n, /)
matrix_rank(x, /, *, rtol=None)
matrix_transpose(x, /)
outer(x1, x2, /)
pinv(x, /, *, rtol=None)
qr(x, /, *, mode="reduced")
slogdet(x, /)
solve(x1, x2, /)
svd(x, /, *, full_matrices=True)
svdvals(x, /)
tensordot(x1, x2, /, *, axes=2)
trace(x, /, *, offset=0, dtype=None)
vecdot(x1, x2, /, *, axis=-1)
vector_norm(x, /, *, axis=None, keepdims=False, ord=2)
"""
FFT = """
fft(x, /, *, n=None, axis=-1, norm="backward")
ifft(x, /, *, n=None, axis=-1, norm="backward")
fftn(x, /, *, s=None, axes=None, norm="backward")
ifftn(x, /, *, s=None, axes=None, norm="backward")
rfft(x, /, *, n=None, axis=-1, norm="backward")
irfft(x, /, *, n=None, axis=-1, norm="backward")
rfftn(x, /, *, s=None, axes=None, norm="backward")
irfftn(x, /, *, s=None, axes=None, norm="backward")
hfft(x, /, *, n=None, axis=-1, norm="backward")
ihfft(x, /, *, n=None, axis=-1, norm="backward")
fftfreq(n, /, *, d=1.0, dtype=None, device=None)
rfftfreq(n, /, *, d=1.0, dtype=None, device=None)
fftshift(x, /, *, axes=None)
ifftshift(x, /, *, axes=None)
"""


@pytest.mark.parametrize(("name", "wanted"), parse(LINALG).items())
def test_linalg(name, wanted):
    fits(name, inspect.signature(getattr(td.linalg, name)), wanted)


@pytest.mark.parametrize(("name", "wanted"), parse(FFT).items())
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
