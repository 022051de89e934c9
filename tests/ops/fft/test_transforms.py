"""Fourier transforms against NumPy's, and their gradients."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_gradients, check_op

X = td.fft


rng = np.random.default_rng(0)


def real(*shape, dtype="float64"):
    return rng.normal(size=shape).astype(dtype)


def complex_(*shape, dtype="complex128"):
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def both(*arrays):
    narrow = {"c": "complex64", "f": "float32"}
    return [(x,) for a in arrays for x in (a, a.astype(narrow[a.dtype.kind]))]


@pytest.mark.parametrize("name", ["fft", "ifft"])
def test_complex_transforms(name):
    reference = getattr(np.fft, name)
    check_op(getattr(X, name), reference, inputs=both(complex_(2, 5), complex_(8)), rtol=1e-4, atol=1e-5)
    check_op(getattr(X, name), reference, inputs=[(real(2, 6),)])
    for norm in ("backward", "ortho", "forward"):
        for n in (None, 3, 8):
            x = complex_(2, 5, 3)
            made = getattr(X, name)(td.tensor(x), n=n, axis=1, norm=norm)
            np.testing.assert_allclose(made.numpy(), reference(x, n=n, axis=1, norm=norm), atol=1e-12)
    check_gradients(lambda x: getattr(X, name)(x, n=6, axis=0, norm="forward"), [complex_(4, 2)])
    check_gradients(lambda x: getattr(X, name)(x, n=3, norm="ortho"), [real(2, 4)])


@pytest.mark.parametrize("name", ["rfft", "ihfft"])
def test_transforms_of_real_numbers(name):
    reference = getattr(np.fft, name)
    check_op(getattr(X, name), reference, inputs=both(real(2, 6), real(5)), rtol=1e-4, atol=1e-5)
    for norm in ("backward", "ortho", "forward"):
        for n in (None, 4, 9):
            x = real(2, 5, 3)
            made = getattr(X, name)(td.tensor(x), n=n, axis=1, norm=norm)
            np.testing.assert_allclose(made.numpy(), reference(x, n=n, axis=1, norm=norm), atol=1e-12)
    with pytest.raises(td.DTypeError, match="must be real"):
        getattr(X, name)(td.tensor([1j]))


@pytest.mark.parametrize("name", ["irfft", "hfft"])
def test_transforms_to_real_numbers(name):
    reference = getattr(np.fft, name)
    check_op(getattr(X, name), reference, inputs=both(complex_(2, 4)), rtol=1e-4, atol=1e-5)
    for norm in ("backward", "ortho", "forward"):
        for n in (None, 5, 6, 9):
            x = complex_(2, 4, 3)
            made = getattr(X, name)(td.tensor(x), n=n, axis=1, norm=norm)
            np.testing.assert_allclose(made.numpy(), reference(x, n=n, axis=1, norm=norm), atol=1e-12)
    check_gradients(lambda x: getattr(X, name)(x, n=5), [complex_(2, 3)])
    with pytest.raises(td.ShapeError, match="at least 1"):
        getattr(X, name)(td.ones(3, 1))


def test_several_axes():
    for name in ("fftn", "ifftn", "rfftn", "irfftn"):
        x = real(3, 4, 5) if name == "rfftn" else complex_(3, 4, 5)
        for kwargs in (
            {},
            {"axes": (0, 2)},
            {"s": (2, 6), "axes": (2, 0)},
            {"s": (2, 6), "axes": (1, 2), "norm": "ortho"},
        ):
            made = getattr(X, name)(td.tensor(x), **kwargs)
            np.testing.assert_allclose(made.numpy(), getattr(np.fft, name)(x, **kwargs), atol=1e-12)
        two = name.replace("n", "2")
        np.testing.assert_allclose(getattr(X, two)(td.tensor(x)).numpy(), getattr(np.fft, two)(x), atol=1e-12)
        check_gradients(lambda x, name=name: getattr(X, name)(x), [x[:2, :2, :3]])
    x = complex_(2, 3, 4)
    np.testing.assert_allclose(X.fftn(td.tensor(x), s=(2, -1)).numpy(), np.fft.fftn(x[:, :2], axes=(1, 2)), atol=1e-12)
    np.testing.assert_allclose(X.fft2(td.tensor(x), dim=(0, 1)).numpy(), np.fft.fft2(x, axes=(0, 1)), atol=1e-12)


def test_hermitian_transforms_of_several_axes():
    scipy_fft = pytest.importorskip("scipy.fft")
    x, y = complex_(3, 4, 5), real(3, 4, 5)
    for name in ("hfftn", "hfft2"):
        np.testing.assert_allclose(getattr(X, name)(td.tensor(x)).numpy(), getattr(scipy_fft, name)(x), atol=1e-11)
    for name in ("ihfftn", "ihfft2"):
        np.testing.assert_allclose(getattr(X, name)(td.tensor(y)).numpy(), getattr(scipy_fft, name)(y), atol=1e-11)
    check_gradients(lambda x: X.hfft2(x), [x[:2, :3, :3]], second=False)
    check_gradients(lambda x: X.ihfft2(x), [y[:2, :3, :3]], second=False)


def test_sizes_of_all_kinds():
    """Radices with code of their own, others, primes that become convolutions, and lines too long for lanes."""
    for n in (1, 2, 3, 7, 16, 30, 61, 64, 67, 128, 210, 1021, 4096, 8190, 16384, 20011):
        for lines in (1, 3, 20):
            if lines * n > 70000:
                continue
            x = complex_(lines, n)
            expected = np.fft.fft(x)
            bound = 1e-15 * (5 + np.log2(n)) * np.abs(expected).max()
            assert np.abs(X.fft(td.tensor(x)).numpy() - expected).max() <= bound
            single = X.fft(td.tensor(x.astype("complex64"))).numpy()
            assert np.abs(single - expected).max() <= 4e-7 * (3 + np.log2(n)) * np.abs(expected).max()
            assert np.abs(X.rfft(td.tensor(x.real.copy())).numpy() - np.fft.rfft(x.real)).max() <= bound
            back = X.irfft(X.rfft(td.tensor(x.real.copy())), n=n).numpy()
            np.testing.assert_allclose(back, x.real, atol=1e-13)


def test_layouts_and_threads_do_not_matter():
    x = complex_(5, 7, 33)
    t = td.tensor(x)
    for axis in range(3):
        whole = X.fft(t, axis=axis).numpy()
        np.testing.assert_allclose(whole, np.fft.fft(x, axis=axis), atol=1e-12)
        np.testing.assert_allclose(
            X.fft(t.permute((2, 0, 1)), axis=(axis + 1) % 3).numpy(), whole.transpose(2, 0, 1), atol=1e-12
        )
    np.testing.assert_allclose(X.fft(t[:, ::2, ::3]).numpy(), np.fft.fft(x[:, ::2, ::3]), atol=1e-12)
    long = td.tensor(complex_(100000))
    threads = td._runtime.num_threads()
    try:
        expected = X.fft(long).numpy()
        td._runtime.set_num_threads(1)
        np.testing.assert_array_equal(expected, X.fft(long).numpy())
    finally:
        td._runtime.set_num_threads(threads)


def test_empty_batches_and_wrong_arguments():
    assert X.fft(td.zeros(0, 4)).shape == (0, 4)
    assert X.rfft(td.zeros(0, 4)).shape == (0, 3)
    assert X.irfft(td.zeros(0, 3)).shape == (0, 4)
    assert X.fft(td.ones(3, dtype=td.int64)).dtype is td.complex64
    for call, message in (
        (lambda: X.fft(td.zeros(2, 0)), "n is 0"),
        (lambda: X.fft(td.ones(3), n=0), "n is 0"),
        (lambda: X.fftn(td.ones(2, 2), s=(1, 2, 3)), "s has 3 sizes"),
        (lambda: X.fft(td.tensor(1.0)), "no axes"),
    ):
        with pytest.raises(td.ShapeError, match=message):
            call()
    with pytest.raises(td.ValueRangeError, match="norm"):
        X.fft(td.ones(3), norm="both")
    with pytest.raises(td.ValueRangeError, match="twice"):
        X.fftn(td.ones(3, 3), axes=(0, 0))
    with pytest.raises(td.DTypeError, match="float16"):
        X.fft(td.ones(3).to(td.float16))
