"""Windows for signals: bell-shaped weights of n samples."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ValueRangeError
from tandem.graph.symbolic import is_general
from tandem.ops.create import finish
from tandem.ops.define import op, public
from tandem.ops.prepare import constant


@op(name="window", hidden=True)
def _window(n: Int, periodic, kind, parameters, dtype):
    if n < 0:
        raise ValueRangeError(f"{kind}_window", f"the length is {n}; it must not be negative")
    dtype = dtypes.as_dtype(dtype)
    if not is_general(n) and n <= 1:
        return F.full((n,), 1, dtype=dtype)
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    last = F.astype(F.Size(n, dtypes.int64)(), wide) - (0 if periodic else 1)
    share = F.Iota((n,), 0, wide)() / last  # from 0 to 1
    if is_general(n):
        share = F.where(F.less(constant(n, dtypes.int64), 2), 0.5, share)  # one number is the middle
    if kind == "bartlett":
        made = 1 - F.abs(share * 2 - 1)
    elif kind == "kaiser":
        side = F.maximum(1 - (share * 2 - 1) ** 2, 0)
        made = F.i0(F.sqrt(side) * parameters[0]) / F.i0(F.full((), parameters[0], dtype=wide))
    else:  # a sum of cosines
        made = F.full((n,), parameters[0], dtype=wide)
        for k, a in enumerate(parameters[1:], 1):
            made = made + F.cos(share * (2 * math.pi * k)) * (a * (-1) ** k)
    return F.astype(made, dtype)


def _make(n, periodic, kind, parameters, dtype, device, requires_grad):
    made = _window(n, bool(periodic), kind, tuple(float(p) for p in parameters), dtype or dtypes.default_float())
    return finish(made, device, requires_grad)


@public
def hann_window(window_length, periodic=True, *, dtype=None, device=None, requires_grad=False):
    """Hann's window: half of 1 - cos. periodic: the first n samples of a window of n + 1.

    >>> td.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _make(window_length, periodic, "hann", (0.5, 0.5), dtype, device, requires_grad)


@public
def hamming_window(
    window_length, periodic=True, alpha=0.54, beta=0.46, *, dtype=None, device=None, requires_grad=False
):
    """Hamming's window: alpha - beta * cos.

    >>> td.hamming_window(4)
    tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """
    return _make(window_length, periodic, "hamming", (alpha, beta), dtype, device, requires_grad)


@public
def blackman_window(window_length, periodic=True, *, dtype=None, device=None, requires_grad=False):
    """Blackman's window: 0.42 - 0.5 cos + 0.08 cos of twice the angle.

    >>> td.blackman_window(3, periodic=False)[1]
    tensor(1.0000)
    """
    return _make(window_length, periodic, "blackman", (0.42, 0.5, 0.08), dtype, device, requires_grad)


@public
def bartlett_window(window_length, periodic=True, *, dtype=None, device=None, requires_grad=False):
    """Bartlett's window: a triangle.

    >>> td.bartlett_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _make(window_length, periodic, "bartlett", (), dtype, device, requires_grad)


@public
def kaiser_window(window_length, periodic=True, beta=12.0, *, dtype=None, device=None, requires_grad=False):
    """Kaiser's window: i0(beta * sqrt(1 - t * t)) / i0(beta) for t from -1 to 1.

    >>> td.kaiser_window(4, beta=1.0)[2]
    tensor(1.)
    """
    return _make(window_length, periodic, "kaiser", (beta,), dtype, device, requires_grad)
