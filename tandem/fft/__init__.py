"""Fourier transforms: the `fft` extension of the Array API standard, and PyTorch's names beyond it. Differentiable; see
docs/linalg_fft.md.

>>> td.fft.rfft(td.tensor([1.0, 0.0, 0.0, 0.0])).shape
(3,)
"""

from tandem.ops.fft.frequencies import fftfreq, fftshift, ifftshift, rfftfreq
from tandem.ops.fft.transforms import (
    fft,
    fft2,
    fftn,
    hfft,
    hfft2,
    hfftn,
    ifft,
    ifft2,
    ifftn,
    ihfft,
    ihfft2,
    ihfftn,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftn,
)

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft",
    "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip
