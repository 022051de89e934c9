"""Transforms as CUDA devices compute them, out of complex transforms of dense lines; here with the CPU's in their place."""

import numpy as np
import pytest

import tandem as td
from tandem.codegen.cuda import fft as cuda_fft
from tandem.ops.define import ParameterSpec, make_function
from tandem.ops.fft.transforms import BY_N, BY_ROOT, NONE, Fft, Irfft, Rfft


def composed(formula, op, monkeypatch):
    monkeypatch.setattr(cuda_fft, "FftLines", lambda forward: lambda x: Fft((x.ndim - 1,), forward, NONE)(x))
    return make_function("fn", lambda x: formula(op, x), [ParameterSpec("x", "tensor", True, None, False)])


def numbers(*shape, dtype=np.complex128):
    rng = np.random.default_rng(0)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


@pytest.mark.parametrize("norm", [NONE, BY_N, BY_ROOT])
@pytest.mark.parametrize("forward", [True, False])
def test_fft(norm, forward, monkeypatch):
    for x in (numbers(3, 4, 5), numbers(3, 4, 5).real.copy(), numbers(2, 7, dtype=np.complex64)):
        for axes in ((x.ndim - 1,), (0, 1)):
            op = Fft(axes, forward, norm)
            expected = make_function("f", lambda x, op=op: op(x), [ParameterSpec("x", "tensor", True, None, False)])
            made = composed(cuda_fft.fft, op, monkeypatch)(td.tensor(x))
            np.testing.assert_allclose(made.numpy(), expected(td.tensor(x)).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("weighed", [False, True])
def test_half_spectra(n, weighed, monkeypatch):
    spec = [ParameterSpec("x", "tensor", True, None, False)]
    for axis in (0, 1):
        shape = (n, 4) if axis == 0 else (3, n)
        x = numbers(*shape).real.copy()
        op = Rfft(axis, BY_N, weighed)
        expected = make_function("f", lambda x, op=op: op(x), spec)(td.tensor(x)).numpy()
        np.testing.assert_allclose(composed(cuda_fft.rfft, op, monkeypatch)(td.tensor(x)).numpy(), expected, atol=1e-12)
        half = list(shape)
        half[axis] = n // 2 + 1
        x = numbers(*half)
        op = Irfft(axis, n, BY_ROOT, weighed)
        expected = make_function("f", lambda x, op=op: op(x), spec)(td.tensor(x)).numpy()
        np.testing.assert_allclose(
            composed(cuda_fft.irfft, op, monkeypatch)(td.tensor(x)).numpy(), expected, atol=1e-12
        )
