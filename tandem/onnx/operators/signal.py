"""Windows, Fourier transforms, mel filters."""

from __future__ import annotations

import numpy as np

import tandem.ops as ops
from tandem import fft
from tandem.onnx.registry import onnx_op
from tandem.onnx.types import dtype_of
from tandem.tensors.constructors import asarray


def _window(name: str, coefficients):
    def run(node, size):
        n = int(np.reshape(size, ()))
        period = n if node.get("periodic", 1) else n - 1
        phase = 2 * np.pi * np.arange(n) / max(period, 1)
        values = sum(c * np.cos(k * phase) for k, c in enumerate(coefficients))
        return asarray(values).to(dtype_of(node.get("output_datatype", 1)))

    onnx_op(name, static=(0,))(run)


_window("HannWindow", (0.5, -0.5))
_window("HammingWindow", (25 / 46, -21 / 46))
_window("BlackmanWindow", (0.42, -0.5, 0.08))


@onnx_op("DFT", since=17, static=(1,))
def dft_attribute(node, x, length=None):
    return _dft(node, x, length, node.get("axis", 1))


@onnx_op("DFT", since=20, static=(1, 2))
def dft(node, x, length=None, axis=None):
    return _dft(node, x, length, -2 if axis is None else int(np.reshape(axis, ())))


def _dft(node, x, length, axis: int):
    axis %= x.ndim
    inverse, onesided = node.get("inverse", 0), node.get("onesided", 0)
    n = int(x.shape[axis]) if length is None else int(np.reshape(length, ()))
    if onesided and inverse:
        n = 2 * (int(x.shape[axis]) - 1) if length is None else n
        return ops.unsqueeze(fft.irfft(_complex(x), n, axis), -1)
    if x.shape[-1] == 1 and not inverse:
        real = x[..., 0]
        return ops.view_as_real((fft.rfft if onesided else fft.fft)(real, n, axis))
    z = (fft.ifft if inverse else fft.fft)(_complex(x), n, axis)
    if onesided:
        z = ops.narrow(z, axis, 0, n // 2 + 1)
    return ops.view_as_real(z)


def _complex(x):
    if x.shape[-1] == 1:
        return ops.complex(x[..., 0], ops.zeros_like(x[..., 0]))
    return ops.complex(x[..., 0], x[..., 1])


@onnx_op("STFT", static=(1, 3))
def stft(node, x, step, window=None, length=None):
    onesided = node.get("onesided", 1)
    n = int(np.reshape(length, ())) if length is not None else int(window.shape[0])
    step = int(np.reshape(step, ()))
    if x.ndim == 3:
        x = x[..., 0] if x.shape[-1] == 1 else _complex(x)
    frames = (int(x.shape[1]) - n) // step + 1
    at = np.arange(frames)[:, None] * step + np.arange(n)[None]
    cut = ops.index_select(x, 1, asarray(at.reshape(-1))).reshape((x.shape[0], frames, n))
    cut = cut if window is None else cut * window
    if cut.dtype.is_complex:
        z = fft.fft(cut)
        return ops.view_as_real(z[..., : n // 2 + 1] if onesided else z)
    return ops.view_as_real(fft.rfft(cut) if onesided else fft.fft(cut))


@onnx_op("MelWeightMatrix", static=(0, 1, 2, 3, 4))
def mel_weight_matrix(node, bins, length, rate, low, high):
    bins, length, rate = (int(np.reshape(v, ())) for v in (bins, length, rate))
    low, high = (float(np.reshape(v, ())) for v in (low, high))
    mel = lambda f: 2595 * np.log10(1 + f / 700)
    step = (mel(high) - mel(low)) / (bins + 2)
    edges = mel(low) + np.arange(bins + 2) * step
    hertz = 700 * (10 ** (edges / 2595) - 1)
    at = ((length + 1) * hertz // rate).astype(np.int64)
    spectrum = length // 2 + 1
    matrix = np.zeros((spectrum, bins))
    for i in range(bins):
        left, middle, right = at[i : i + 3]
        if middle == left:
            matrix[middle, i] = 1
        else:
            rise = np.arange(left, middle + 1)
            matrix[rise, i] = (rise - left) / (middle - left)
        if right > middle:
            fall = np.arange(middle, right)
            matrix[fall, i] = (right - fall) / (right - middle)
    return asarray(matrix).to(dtype_of(node.get("output_datatype", 1)))
