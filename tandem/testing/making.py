"""Tensors of random values for tests."""

from __future__ import annotations

import tandem as td
from tandem import dtypes


def make_tensor(*shape, dtype, device=None, low: float | None = None, high: float | None = None, requires_grad: bool = False,
                noncontiguous: bool = False, exclude_zero: bool = False, memory_format=None):  # fmt: skip
    """Values spread evenly over [low, high): -9 to 9 unless said, 0 to 9 of unsigned types, both truth values of bool.

    >>> td.testing.make_tensor((2, 3), dtype=td.int64, low=0, high=1)
    tensor([[0, 0, 0],
            [0, 0, 0]])
    """
    size = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    dtype = dtypes.as_dtype(dtype)
    if noncontiguous and size:
        size = (*size[:-1], 2 * size[-1])
    if dtype is dtypes.bool_:
        made = td.rand(size, device=device) < 0.5
    elif dtype.is_inexact:
        low, high = -9.0 if low is None else float(low), 9.0 if high is None else float(high)
        _check(low, high)
        parts = dtypes.part_dtype(dtype)
        wide = parts if parts.itemsize >= 4 else dtypes.float32
        draw = lambda: (low + (high - low) * td.rand(size, dtype=wide, device=device)).to(parts)
        made = td.complex(draw(), draw()) if dtype.is_complex else draw()
    else:
        least = td.iinfo(dtype).min
        low, high = max(-9, least) if low is None else int(low), 10 if high is None else int(high)
        _check(low, high)
        made = td.randint(low, high, size, device=device).to(dtype)
    if exclude_zero:
        made = td.where(made == 0, td.ones_like(made), made)
    if noncontiguous and size:
        made = made[..., ::2]
    return made.requires_grad_() if requires_grad else made


def _check(low, high):
    if not low < high:
        raise ValueError(f"make_tensor: low is {low} and high {high}; low must be less")
