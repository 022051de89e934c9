"""Reductions and normalisations of the elements where a mask holds, under PyTorch's path: td.masked.sum(x, 1, mask=m).

mask: broadcasts to input; True where an element counts. Where none does, the result is what the reduction begins with (0 for a
sum, -inf for a maximum), or NaN for a mean.
"""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError
from tandem.ops.prepare import integer_range

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median", "norm",
    "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip


def _filled(name: str, input, mask, dtype, value):
    """input as dtype with `value` where the mask does not hold."""
    if dtype is not None:
        input = F.astype(input, dtypes.as_dtype(dtype), copy=False)
    if mask is None:
        return input
    if mask.dtype.kind != "bool":
        raise DTypeError(f"masked.{name}", f"mask is {mask.dtype}; it must be boolean")
    return F.where(mask, input, F.full((), value, dtype=input.dtype))


def _axes(dim):
    return None if dim is None or (isinstance(dim, (tuple, list)) and not dim) else dim


def _lowest(dtype):
    return -math.inf if dtype.is_floating else False if dtype.kind == "bool" else integer_range(dtype)[0]


def _highest(dtype):
    return math.inf if dtype.is_floating else True if dtype.kind == "bool" else integer_range(dtype)[1]


def sum(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Sum of the elements where mask holds.

    >>> td.masked.sum(td.tensor([1, 2, 4]), mask=td.tensor([True, False, True]))
    tensor(5)
    """
    return F.sum(_filled("sum", input, mask, dtype, 0), _axes(dim), keepdims=bool(keepdim))


def prod(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Product of the elements where mask holds."""
    return F.prod(_filled("prod", input, mask, dtype, 1), _axes(dim), bool(keepdim))


def cumsum(input, dim, *, dtype=None, mask=None):
    """Running sum in the input's dtype, to which elements where mask does not hold add nothing."""
    filled = _filled("cumsum", input, mask, dtype, 0)
    return F.cumsum(filled, dim, dtype=filled.dtype)


def cumprod(input, dim, *, dtype=None, mask=None):
    """Running product in the input's dtype, to which elements where mask does not hold add nothing."""
    filled = _filled("cumprod", input, mask, dtype, 1)
    return F.cumprod(filled, dim, dtype=filled.dtype)


def amax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Largest of the elements where mask holds."""
    kind = input.dtype if dtype is None else dtypes.as_dtype(dtype)
    return F.amax(_filled("amax", input, mask, dtype, _lowest(kind)), _axes(dim), bool(keepdim))


def amin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Smallest of the elements where mask holds."""
    kind = input.dtype if dtype is None else dtypes.as_dtype(dtype)
    return F.amin(_filled("amin", input, mask, dtype, _highest(kind)), _axes(dim), bool(keepdim))


def argmax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Position of the largest of the elements where mask holds, in the input's dtype as PyTorch gives it."""
    kind = input.dtype if dtype is None else dtypes.as_dtype(dtype)
    return F.astype(F.argmax(_filled("argmax", input, mask, dtype, _lowest(kind)), dim, bool(keepdim)), kind)


def argmin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Position of the smallest of the elements where mask holds, in the input's dtype as PyTorch gives it."""
    kind = input.dtype if dtype is None else dtypes.as_dtype(dtype)
    return F.astype(F.argmin(_filled("argmin", input, mask, dtype, _highest(kind)), dim, bool(keepdim)), kind)


def _count(input, mask, dim, keepdim, dtype):
    ones = F.full(input.shape, True, dtype=dtypes.bool_)
    held = ones if mask is None else F.logical_and(ones, mask)
    return F.astype(F.sum(held, _axes(dim), keepdims=bool(keepdim)), dtype)


def mean(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Mean of the elements where mask holds; NaN where there are none.

    >>> td.masked.mean(td.tensor([1.0, 2.0, 4.0]), mask=td.tensor([True, False, True]))
    tensor(2.5000)
    """
    total = sum(input, dim, keepdim=keepdim, dtype=dtype, mask=mask)
    total = total if total.dtype.is_inexact else F.astype(total, dtypes.default_float())
    return total / _count(input, mask, dim, keepdim, dtypes.part_dtype(total.dtype))


def median(input, dim=-1, *, keepdim=False, dtype=None, mask=None):
    """Median (the lower of two in the middle) of the elements where mask holds; NaN where there are none."""
    if not input.dtype.is_floating and dtype is None:
        if mask is not None:
            raise DTypeError("masked.median", f"input is {input.dtype}; with a mask it must be floating")
        return F.median(input, dim, keepdim).values
    return F.nanmedian(_filled("median", input, mask, dtype, math.nan), dim, keepdim).values


def logsumexp(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """log of the sum of exp of the elements where mask holds."""
    return F.logsumexp(_filled("logsumexp", input, mask, dtype, -math.inf), _axes(dim), bool(keepdim))


def logaddexp(input, other, *, dtype=None, input_mask=None, other_mask=None):
    """log(exp(input) + exp(other)), where an element counts as -inf if its mask does not hold."""
    a = _filled("logaddexp", input, input_mask, dtype, -math.inf)
    return F.logaddexp(a, _filled("logaddexp", other, other_mask, dtype, -math.inf))


def norm(input, ord=2.0, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Norm of the vector of elements where mask holds."""
    neutral = math.inf if ord is not None and ord < 0 else 0.0
    return F.vector_norm(
        _filled("norm", input, mask, dtype, neutral), 2.0 if ord is None else ord, _axes(dim), bool(keepdim)
    )


def var(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """Variance of the elements where mask holds, with a correction of 1 unless given."""
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    if dtype is not None or not input.dtype.is_inexact:
        input = F.astype(input, dtypes.as_dtype(dtype) if dtype is not None else dtypes.default_float(), copy=False)
    distance = _filled("var", input - mean(input, dim, keepdim=True, mask=mask), mask, None, 0)
    squares = distance * F.conj(distance) if distance.dtype.is_complex else distance * distance
    total = F.sum(F.real(squares), _axes(dim), keepdims=bool(keepdim))
    return total / F.maximum(_count(input, mask, dim, keepdim, total.dtype) - correction, 0)


def std(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """Standard deviation of the elements where mask holds, with a correction of 1 unless given."""
    return F.sqrt(var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask))


def softmax(input, dim, *, dtype=None, mask=None):
    """softmax of the elements where mask holds; the others get 0.

    >>> td.masked.softmax(td.tensor([0.0, 0.0, 9.0]), 0, mask=td.tensor([True, True, False]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    return F.softmax(_filled("softmax", input, mask, dtype, -math.inf), dim)


def log_softmax(input, dim, *, dtype=None, mask=None):
    """log of masked.softmax."""
    return F.log_softmax(_filled("log_softmax", input, mask, dtype, -math.inf), dim)


def softmin(input, dim, *, dtype=None, mask=None):
    """masked.softmax of the negative."""
    return F.softmax(-_filled("softmin", input, mask, dtype, math.inf), dim)


def normalize(input, ord, dim, *, eps=1e-12, dtype=None, mask=None):
    """The elements where mask holds over their norm; the others get 0."""
    size = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _filled("normalize", input, mask, dtype, 0) / F.maximum(size, eps)
