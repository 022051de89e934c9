"""Windows: bell-shaped weights of M samples. sym: the same from both ends; otherwise the first M of a window of M + 1."""

from __future__ import annotations

import functools
import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ValueRangeError
from tandem.ops.create import finish

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser",
    "nuttall",
]  # fmt: skip


def _made(name: str, M: int, dtype, device, requires_grad: bool, shape):
    """The window in dtype. shape(): its values in float64, for more than one sample."""
    if M < 0:
        raise ValueRangeError(name, f"M is {M}; it must not be negative")
    dtype = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
    if dtype not in (dtypes.float32, dtypes.float64):
        raise ValueRangeError(name, f"dtype is {dtype}; it must be float32 or float64")
    values = shape() if M > 1 else F.full((M,), 1.0, dtype=dtypes.float64)
    return finish(F.astype(values, dtype), device, requires_grad)


def _share(M: int, sym: bool):
    """Places from 0 to 1."""
    return F.arange(M, dtype=dtypes.float64) / (M - 1 if sym else M)


def general_cosine(M, *, a, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """A sum of cosines with coefficients a, of alternating sign.

    >>> td.signal.windows.general_cosine(3, a=[0.5, 0.5])
    tensor([0., 1., 0.])
    """
    if not hasattr(a, "__iter__"):
        raise DTypeError("general_cosine", f"a is a {type(a).__name__}; it must be a sequence of coefficients")
    a = list(a)
    if not a:
        raise ValueRangeError("general_cosine", "a has no coefficients")

    def shape():
        share = _share(M, sym) * (2 * math.pi)
        total = F.full((M,), float(a[0]), dtype=dtypes.float64)
        for k, coefficient in enumerate(a[1:], 1):
            total = total + F.cos(share * k) * (float(coefficient) * (-1) ** k)
        return total

    return _made("general_cosine", M, dtype, device, requires_grad, shape)


def general_hamming(M, *, alpha=0.54, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """alpha - (1 - alpha) * cos."""
    return general_cosine(M, a=[alpha, 1 - alpha], sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def hamming(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """Hamming's window: 0.54 - 0.46 * cos."""
    return general_hamming(M, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def hann(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """Hann's window: half of 1 - cos.

    >>> td.signal.windows.hann(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def blackman(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """Blackman's window, of three cosines."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def nuttall(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """Nuttall's window with the least side lobes, of four cosines."""
    a = [0.3635819, 0.4891775, 0.1365995, 0.0106411]
    return general_cosine(M, a=a, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def bartlett(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """A triangle that is 0 at the ends."""
    return _made("bartlett", M, dtype, device, requires_grad, lambda: 1 - F.abs(_share(M, sym) * 2 - 1))


def cosine(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """Half a sine."""

    def shape():
        return F.sin((F.arange(M, dtype=dtypes.float64) + 0.5) * (math.pi / (M if sym else M + 1)))

    return _made("cosine", M, dtype, device, requires_grad, shape)


def gaussian(M, *, std=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """Gauss's bell with a standard deviation of std samples."""
    if std <= 0:
        raise ValueRangeError("gaussian", f"std is {std}; it must be positive")

    def shape():
        place = F.arange(M, dtype=dtypes.float64) - (M - 1 if sym else M) / 2
        return F.exp(F.square(place / std) * -0.5)

    return _made("gaussian", M, dtype, device, requires_grad, shape)


def exponential(M, *, center=None, tau=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """exp(-|n - center| / tau). center: the middle unless given, which a window that is not symmetric may be."""
    if tau <= 0:
        raise ValueRangeError("exponential", f"tau is {tau}; it must be positive")
    if sym and center is not None:
        raise ValueRangeError("exponential", "a symmetric window has its center in the middle", fix="pass sym=False")

    def shape():
        middle = (M - 1 if sym else M) / 2 if center is None else center
        return F.exp(F.abs(F.arange(M, dtype=dtypes.float64) - middle) / -tau)

    return _made("exponential", M, dtype, device, requires_grad, shape)


def kaiser(M, *, beta=12.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """Kaiser's window; the larger beta, the narrower."""
    if beta < 0:
        raise ValueRangeError("kaiser", f"beta is {beta}; it must not be negative")

    def shape():
        side = F.maximum(1 - F.square(_share(M, sym) * 2 - 1), 0)
        return F.i0(F.sqrt(side) * beta) / F.i0(F.full((), float(beta), dtype=dtypes.float64))

    return _made("kaiser", M, dtype, device, requires_grad, shape)


def _strided(window):
    @functools.wraps(window)
    def call(*args, layout=None, **kwargs):
        if getattr(layout, "name", "strided") != "strided":
            raise ValueRangeError(window.__name__, f"layout is {layout}; windows are strided")
        return window(*args, **kwargs)

    return call


for _name in __all__:
    globals()[_name] = _strided(globals()[_name])
