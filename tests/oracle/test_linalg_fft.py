"""td.linalg, td.fft and short-time transforms against PyTorch's: values and gradients."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import tandem as td

pytestmark = pytest.mark.oracle
RNG = np.random.default_rng(7)


def normal(*shape, complex_=False):
    x = RNG.normal(size=shape)
    return x + 1j * RNG.normal(size=shape) if complex_ else x


def regular(*shape, complex_=False):
    return normal(*shape, complex_=complex_) + 3 * np.eye(shape[-1])


def positive(*shape, complex_=False):
    x = normal(*shape, complex_=complex_)
    return x @ np.swapaxes(x, -1, -2).conj() + 3 * np.eye(shape[-1])


def flat(x):
    return list(x) if isinstance(x, (tuple, list)) else [x]


def compare(function, *arrays, rtol=1e-7, atol=1e-8):
    """function(namespace, *tensors) gives the same, with the same gradients, for both."""
    ours = [td.tensor(a, requires_grad=True) for a in arrays]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    got, expected = flat(function(td, *ours)), flat(function(torch, *theirs))
    assert len(got) == len(expected)
    total_got = total_expected = 0.0
    for g, e in zip(got, expected, strict=True):
        assert tuple(g.shape) == tuple(e.shape)
        assert str(g.dtype) == str(e.dtype).removeprefix("torch.")
        np.testing.assert_allclose(g.detach().numpy(), e.detach().resolve_conj().numpy(), rtol=rtol, atol=atol)
        if e.requires_grad:
            weights = normal(*e.shape, complex_=e.is_complex())
            a, b = (g * td.tensor(weights)).sum(), (e * torch.tensor(weights)).sum()
            total_got = total_got + (a.real if e.is_complex() else a)
            total_expected = total_expected + (b.real if e.is_complex() else b)
    if isinstance(total_expected, float):
        return
    total_got.backward()
    total_expected.backward()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.resolve_conj().numpy(), rtol=rtol, atol=atol)


@pytest.mark.parametrize("complex_", [False, True])
def test_linalg(complex_):
    a, b = regular(2, 3, 3, complex_=complex_), normal(2, 3, 2, complex_=complex_)
    tall, wide = normal(4, 3, complex_=complex_), normal(3, 4, complex_=complex_)
    for name in ("inv", "det", "slogdet", "matrix_exp", "svdvals", "cond", "lu_factor"):
        compare(lambda m, x, name=name: getattr(m.linalg, name)(x), a)
    compare(lambda m, a, b: m.linalg.solve(a, b), a, b)
    compare(lambda m, a, b: m.linalg.solve(a, b, left=False), a, np.swapaxes(b, -1, -2).copy())
    compare(lambda m, a, b: m.linalg.solve_triangular(a, b, upper=True), a, b)
    compare(lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b, adjoint=True), a, b)
    for upper in (False, True):  # through a Hermitian matrix: PyTorch's gradient has a part beside those
        compare(
            lambda m, x, upper=upper: m.linalg.cholesky((x + m.conj(x.mT)) / 2, upper=upper),
            positive(2, 3, 3, complex_=complex_),
        )
    compare(lambda m, x: m.linalg.matrix_power(x, -3), a)
    for x in (a, tall, wide):
        compare(lambda m, x: m.linalg.qr(x)[1].abs(), x)
        compare(lambda m, x: m.linalg.pinv(x), x)
        compare(lambda m, x: m.linalg.lu(x), x)
        for ord in ("fro", "nuc", np.inf, -np.inf, 1, -1, 2, -2):
            compare(lambda m, x, ord=ord: m.linalg.matrix_norm(x, ord), x)
            compare(lambda m, x, ord=ord: m.linalg.norm(x, ord, (-2, -1), True), x)
    compare(lambda m, a, b: m.linalg.lstsq(a, b).solution, tall, normal(4, 2, complex_=complex_))
    compare(lambda m, x: m.linalg.eigvalsh(x), positive(3, 3, complex_=complex_))
    compare(lambda m, x: m.linalg.eigh(x)[1].abs(), positive(3, 3, complex_=complex_))
    compare(lambda m, x, y: m.linalg.cross(x, y), normal(4, 3, complex_=complex_), normal(4, 3, complex_=complex_))
    compare(lambda m, x: m.linalg.vander(x, N=3), normal(4, complex_=complex_))
    compare(lambda m, x, t: m.linalg.householder_product(x, t), tall, normal(2, complex_=complex_))
    compare(lambda m, *x: m.linalg.multi_dot(x), a[0], tall.T.copy(), normal(4, complex_=complex_))


def test_older_spellings():
    a, b = regular(3, 3), normal(3, 2)
    compare(lambda m, x: m.svd(x)[1], a)
    compare(lambda m, x: m.inverse(x), a)
    compare(lambda m, x: m.logdet(x), positive(3, 3))
    compare(lambda m, x: m.pinverse(x), a)
    compare(lambda m, x: m.trace(x), a)
    x = normal(4)
    np.testing.assert_allclose(td.vander(td.tensor(x)).numpy(), torch.vander(torch.tensor(x)).numpy())
    compare(lambda m, b, x: m.cholesky_solve(b, m.linalg.cholesky(x)), b, positive(3, 3))
    compare(lambda m, x: m.cholesky_inverse(m.linalg.cholesky(x)), positive(3, 3))
    compare(lambda m, x, y: m.chain_matmul(x, y), a, b)


def test_fft():
    x, z = normal(2, 5, 6), normal(2, 5, 6, complex_=True)
    for norm in (None, "forward", "ortho"):
        for name in ("fft", "ifft"):
            for n in (None, 4, 9):
                compare(lambda m, x, name=name, n=n, norm=norm: getattr(m.fft, name)(x, n, 1, norm), z)
        for name in ("rfft", "ihfft"):
            compare(lambda m, x, name=name, norm=norm: getattr(m.fft, name)(x, dim=1, norm=norm), x)
        for name in ("irfft", "hfft"):
            compare(lambda m, x, name=name, norm=norm: getattr(m.fft, name)(x, n=7, dim=-1, norm=norm), z)
        for name in ("fftn", "ifftn", "irfftn", "hfftn", "fft2", "irfft2", "hfft2"):
            compare(lambda m, x, name=name, norm=norm: getattr(m.fft, name)(x, norm=norm), z)
            compare(lambda m, x, name=name, norm=norm: getattr(m.fft, name)(x, s=(4, 6), norm=norm), z)
        for name in ("rfftn", "ihfftn", "rfft2", "ihfft2"):
            compare(lambda m, x, name=name, norm=norm: getattr(m.fft, name)(x, norm=norm), x)
    compare(lambda m, x: m.fft.fftshift(x, dim=1), x)
    np.testing.assert_allclose(td.fft.fftfreq(5, 0.1).numpy(), torch.fft.fftfreq(5, 0.1).numpy())


def test_short_time_transforms():
    x, window = normal(2, 50), np.hanning(9)[:8].copy()
    for kwargs in ({}, {"normalized": True}, {"center": False}, {"onesided": False}, {"pad_mode": "constant"}):
        compare(lambda m, x, w, kwargs=kwargs: m.stft(x, 8, 3, window=w, return_complex=True, **kwargs), x, window)
    compare(lambda m, x, w: m.stft(x, 8, 3, 6, window=w, return_complex=True), x, window[1:7].copy())

    def there_and_back(m, x, w, **kwargs):
        return m.istft(m.stft(x, 8, 2, window=w, return_complex=True), 8, 2, window=w, **kwargs)

    compare(there_and_back, x, window)
    compare(lambda m, x, w: there_and_back(m, x, w, length=45), x, window)
    compare(lambda m, y: m.istft(y, 8, 2), normal(5, 6, complex_=True))
