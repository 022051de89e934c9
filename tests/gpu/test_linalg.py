"""Factorisations, transforms and special functions on CUDA devices, by NVIDIA's libraries or through the host."""

import numpy as np
import pytest

import tandem as td

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]

RNG = np.random.default_rng(0)
GENERAL = RNG.normal(size=(3, 6, 6))
TALL = RNG.normal(size=(2, 7, 4))
SYMMETRIC = GENERAL @ GENERAL.swapaxes(-1, -2) + 6 * np.eye(6)
RIGHT = RNG.normal(size=(3, 6, 2))
COMPLEX = GENERAL + 1j * RNG.normal(size=(3, 6, 6))
HERMITIAN = COMPLEX @ COMPLEX.conj().swapaxes(-1, -2) + 6 * np.eye(6)


def same(fn, *arrays, rtol=1e-8, atol=1e-9):
    """fn gives the same on the CPU, on the device, and compiled there; so do gradients."""

    def run(device, wrap):
        tensors = [td.tensor(a, device=device, requires_grad=True) for a in arrays]
        made = wrap(fn)(*tensors)
        parts = list(made) if isinstance(made, (tuple, list)) else [made]
        assert all(p.device == device for p in parts)
        floats = [p for p in parts if p.requires_grad]
        if floats:
            td.autograd.backward(floats, [td.ones_like(p) for p in floats])
        return [p.detach().cpu().numpy() for p in parts] + [t.grad.cpu().numpy() for t in tensors if t.grad is not None]

    expected = run("cpu", lambda f: f)
    for wrap in (lambda f: f, td.compile):
        for a, e in zip(run("cuda", wrap), expected, strict=True):
            assert a.dtype == e.dtype
            np.testing.assert_allclose(a, e, rtol=rtol, atol=atol)


@pytest.fixture
def lapack():
    try:
        td.linalg.inv(td.eye(2))
    except td.UnsupportedError:
        pytest.skip("this copy of Tandem has no LAPACK to compare with")


def test_cholesky(lapack):
    same(td.linalg.cholesky, SYMMETRIC)
    same(td.linalg.cholesky, HERMITIAN)
    same(td.linalg.cholesky, SYMMETRIC[0].astype(np.float32), rtol=1e-4, atol=1e-5)
    with pytest.raises(td.LinAlgError, match="not positive definite"):
        td.linalg.cholesky(td.tensor(-SYMMETRIC, device="cuda"))


def test_solve_inverse_and_determinant(lapack):
    same(td.linalg.solve, GENERAL, RIGHT)
    same(td.linalg.solve, COMPLEX, RIGHT + 0j)
    same(td.linalg.inv, GENERAL)
    same(td.linalg.det, GENERAL)
    same(lambda a: td.linalg.lu_factor(a)[0], TALL)
    with pytest.raises(td.LinAlgError, match="singular"):
        td.linalg.solve(td.zeros(3, 3, device="cuda"), td.ones(3, 1, device="cuda"))


def test_eigenvalues_and_singular_values(lapack):
    same(td.linalg.eigvalsh, SYMMETRIC)
    same(td.linalg.eigvalsh, HERMITIAN)
    same(td.linalg.svdvals, TALL)
    x = td.tensor(SYMMETRIC, device="cuda")
    w, v = td.linalg.eigh(x)
    np.testing.assert_allclose((v * w[:, None] @ v.mT).cpu().numpy(), SYMMETRIC, atol=1e-10)
    q, r = td.linalg.qr(td.tensor(TALL, device="cuda"))
    np.testing.assert_allclose((q @ r).cpu().numpy(), TALL, atol=1e-12)


def test_transforms():
    for x in (GENERAL, COMPLEX):
        same(td.fft.fft, x)
        same(lambda x: td.fft.ifft(x, axis=1, norm="ortho"), x)
        same(td.fft.fft2, x)
    same(lambda x: td.fft.rfft(x, axis=1), GENERAL)
    same(lambda x: td.fft.irfft(x, n=7), COMPLEX)
    same(lambda x: td.fft.irfft(td.fft.rfft(x)), GENERAL.astype(np.float32), rtol=1e-4, atol=1e-5)


def test_special_functions_and_what_else_goes_through_the_host():
    x = np.abs(GENERAL) + 0.1
    same(td.special.bessel_j0, x)
    same(td.special.bessel_y1, x)
    same(lambda a: td.special.gammainc(a, a + 0.5), x)
    same(lambda a: td.cummax(a, 1)[0], x)
    assert td.gcd(td.tensor([12, 18], device="cuda"), td.tensor([8, 27], device="cuda")).tolist() == [4, 9]


def test_complex_products_and_running_sums():
    same(lambda a, b: a @ b, COMPLEX, COMPLEX)
    same(lambda a: td.cumsum(a, 1), COMPLEX)
    same(lambda a: td.cumprod(a, 1), COMPLEX)
    same(lambda a: td.logcumsumexp(a, 1), GENERAL)


def test_expandable_segments():
    td.cuda.synchronize()
    td.cuda.empty_cache()
    td.cuda.set_expandable_segments(True)
    try:
        parts = [td.ones(64 << 18, device="cuda") * i for i in range(16)]  # 64 MB each
        assert [float(p[-1]) for p in parts] == [float(i) for i in range(16)]
        reserved = td.cuda.memory_reserved()
        del parts
        whole = td.ones(900 << 18, device="cuda")
        assert float(whole[-1]) == 1
        assert td.cuda.memory_reserved() <= reserved + (20 << 20)
        free = td.cuda.mem_get_info()[0]
        del whole
        td.cuda.empty_cache()
        assert td.cuda.mem_get_info()[0] > free + (800 << 20)
        w = td.ones(1 << 20, device="cuda")
        step = td.compile(lambda x: (w * x).exp().sum())  # graphs have pools of their own
        for _ in range(6):
            np.testing.assert_allclose(float(step(td.zeros(1 << 20, device="cuda"))), 1 << 20)
    finally:
        td.cuda.set_expandable_segments(False)


def test_prefetched_batches():
    data = td.data.TensorDataset(td.arange(4096.0).reshape(64, 64), td.arange(64))
    loader = td.data.DataLoader(data, batch_size=5, shuffle=True, device="cuda")
    for _ in range(2):
        seen = []
        for x, y in loader:
            assert x.device == "cuda"
            assert bool(td.equal(x[:, 0], (y * 64).to(td.float32)).all())
            seen += y.tolist()
        assert sorted(seen) == list(range(64))
