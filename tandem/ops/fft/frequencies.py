"""Frequencies that the elements of a transform stand for, and their order."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ShapeError
from tandem.graph.symbolic import is_general
from tandem.ops.create import finish
from tandem.ops.define import op
from tandem.ops.prepare import cast, constant, normalize_axes


@op(name="fftfreq", hidden=True)
def _frequencies(n: Int, d: Tensor, half, dtype):
    if n < 1:
        raise ShapeError("rfftfreq" if half else "fftfreq", f"n is {n}; it must be at least 1")
    number = F.Iota((n // 2 + 1,) if half else (n,), 0, dtypes.int64)()
    if not half:
        count = constant(n, dtypes.int64)
        number = F.where(F.less(number, constant((n + 1) // 2, dtypes.int64)), number, number - count)
    return cast(cast(number, dtypes.float64) / (cast(d, dtypes.float64) * n), dtype)


def _make(name, n, d, half, dtype, device, requires_grad):
    dtype = dtypes.as_dtype(dtype or dtypes.default_float())
    if not dtype.is_inexact:
        raise DTypeError(name, f"dtype is {dtype}; it must be floating")
    return finish(_frequencies(n, float(d), half, dtype), device, requires_grad)


def fftfreq(n, d=1.0, *, dtype=None, device=None, requires_grad=False):
    """Frequencies of the elements of fft of n samples that are d apart: 0, 1, ..., -2, -1 over n * d.

    >>> td.fft.fftfreq(4)
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    return _make("fftfreq", n, d, False, dtype, device, requires_grad)


def rfftfreq(n, d=1.0, *, dtype=None, device=None, requires_grad=False):
    """Frequencies of the elements of rfft of n samples that are d apart: 0, 1, ..., n // 2 over n * d.

    >>> td.fft.rfftfreq(4)
    tensor([0.0000, 0.2500, 0.5000])
    """
    return _make("rfftfreq", n, d, True, dtype, device, requires_grad)


@op(name="fftshift", hidden=True)
def _shift(x: Tensor, axes, back):
    for axis in normalize_axes("ifftshift" if back else "fftshift", axes, x.ndim):
        size = x.shape[axis]
        first = size // 2 if back else (size + 1) // 2  # elements that go to the end
        if is_general(size) or size > 1:
            parts = F.slice_axis(x, axis, first, size - first), F.slice_axis(x, axis, 0, first)
            x = F.concat(list(parts), axis)
    return F.Copy()(x) if x.op.is_input else x


def fftshift(x, axes=None, *, dim=None):
    """x with the zero frequency in the middle of axes, all by default.

    >>> td.fft.fftshift(td.tensor([0, 1, -2, -1]))
    tensor([-2, -1,  0,  1])
    """
    axes = axes if dim is None else dim
    return _shift(x, tuple(axes) if isinstance(axes, list) else axes, False)


def ifftshift(x, axes=None, *, dim=None):
    """The inverse of fftshift.

    >>> td.fft.ifftshift(td.tensor([-2, -1, 0, 1]))
    tensor([ 0,  1, -2, -1])
    """
    axes = axes if dim is None else dim
    return _shift(x, tuple(axes) if isinstance(axes, list) else axes, True)
