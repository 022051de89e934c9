"""Short-time Fourier transforms and back."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_gradients

rng = np.random.default_rng(0)


def real(*shape, dtype="float64"):
    return rng.normal(size=shape).astype(dtype)


def complex_(*shape, dtype="complex128"):
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


# -- short-time transforms


def frames(x, n_fft, hop, window):
    x = np.pad(x, (n_fft // 2, n_fft // 2), mode="reflect")
    count = (len(x) - n_fft) // hop + 1
    return np.stack([np.fft.rfft(x[i * hop : i * hop + n_fft] * window) for i in range(count)], axis=1)


def test_stft():
    x, window = real(40), np.hanning(9)[:8]
    made = td.stft(td.tensor(x), 8, 3, window=td.tensor(window), return_complex=True)
    np.testing.assert_allclose(made.numpy(), frames(x, 8, 3, window), atol=1e-12)
    batch = td.stft(td.tensor(np.stack([x, 2 * x])), 8, 3, window=td.tensor(window))
    np.testing.assert_allclose(batch[1].numpy(), 2 * made.numpy(), atol=1e-12)
    assert td.stft(td.tensor(x), 8, return_complex=False).shape == (5, 21, 2)
    assert td.stft(td.tensor(x), 8, onesided=False, center=False).shape == (8, 17)
    check_gradients(lambda x, w: td.stft(x, 4, 2, window=w), [real(9), real(4)])
    with pytest.raises(td.ShapeError, match="fewer than one frame"):
        td.stft(td.ones(4), 8, center=False)


def test_istft_inverts_stft():
    x, window = real(2, 48), td.tensor(np.hanning(9)[:8])
    for kwargs in ({}, {"normalized": True}, {"win_length": 6, "window": td.tensor(np.hanning(8)[1:7])}):
        kwargs = {"window": window, **kwargs}
        y = td.stft(td.tensor(x), 8, 2, **kwargs)
        np.testing.assert_allclose(td.istft(y, 8, 2, **kwargs).numpy(), x, atol=1e-12)
    assert td.istft(y, 8, 2, length=40, **kwargs).shape == (2, 40)
    check_gradients(lambda y: td.istft(y, 4, 1), [complex_(3, 4)])
    with pytest.raises(td.ValueRangeError, match="gaps"):
        td.istft(td.stft(td.ones(20), 4, 4, center=False, window=window[:4]), 4, 4, center=False, window=td.zeros(4))
