"""Variance, norms and other summaries built from reductions."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes, promotion
from tandem.errors import ValueRangeError
from tandem.graph.ir import Value
from tandem.graph.symbolic import product
from tandem.ops.arithmetic import Cast
from tandem.ops.complexes import imag_of, real_of
from tandem.ops.define import method, op
from tandem.ops.precision import NARROW, in_float32, widen
from tandem.ops.prepare import cast, constant, normalize_axes, normalize_axis, to_float
from tandem.ops.reduce import reduce


def _comes_from_16_bits(x: Value) -> bool:
    return isinstance(x.op, Cast) and x.node.inputs[0].dtype in NARROW


def _moments(name: str, x, axis, correction, unbiased, keepdims: bool, default: int = 0):
    """(variance, mean). Two passes: the mean first, then squared distances from it."""
    if isinstance(axis, bool):  # PyTorch's x.var(unbiased)
        axis, unbiased = None, axis
    if correction is None:
        correction = default if unbiased is None else int(unbiased)
    elif unbiased is not None:
        raise ValueRangeError(
            name, "both correction and unbiased are given", fix="give correction only; unbiased=True is correction=1"
        )
    x = to_float(x)
    if x.dtype.is_complex:  # distances in the plane
        (v_re, re), (v_im, im) = (_moments(name, p, axis, correction, None, keepdims) for p in (real_of(x), imag_of(x)))
        return v_re + v_im, F.complex(re, im)
    axes = normalize_axes(name, axis, x.ndim)
    mean = F.mean(x, axes, keepdims=True)
    # Distances and squares in float64, too: over a few elements their rounding would be most of the error.
    wide = x.dtype if _comes_from_16_bits(x) else dtypes.float64
    distance = cast(x, wide) - cast(mean, wide)
    count = constant(product(x.shape[a] for a in axes), dtypes.float64)
    if correction:
        count = F.maximum(count - correction, 0)
    total = reduce(distance * distance, "sum", axes, keepdims, dtypes.float64)
    variance = cast(total / count, x.dtype)
    return variance, (mean if keepdims else F.Reshape(variance.shape)(mean))


@op
@in_float32
def var(x: Tensor, axis: Axes = None, unbiased=None, keepdims=False, *, correction=None):
    """Variance over axes (all by default): squared distances from the mean, added up and divided by their number less correction.

    The correction is 0 unless given, as in NumPy and the Array API. The method x.var() is PyTorch's, where it is 1.

    >>> td.var(td.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor(1.2500)
    >>> td.var(td.tensor([1.0, 2.0, 3.0, 4.0]), correction=1)
    tensor(1.6667)
    """
    return _moments("var", x, axis, correction, unbiased, keepdims)[0]


def _root(x):
    """Square root with gradient 0 at 0, where the true one is not defined."""
    zero = F.equal(x, 0)
    return F.where(zero, 0, F.sqrt(F.where(zero, 1, x)))


@op
@in_float32
def std(x: Tensor, axis: Axes = None, unbiased=None, keepdims=False, *, correction=None):
    """Standard deviation: the square root of the variance. See var for the correction.

    >>> td.std(td.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor(1.1180)
    """
    return _root(_moments("std", x, axis, correction, unbiased, keepdims)[0])


@op
@in_float32
def var_mean(x: Tensor, axis: Axes = None, unbiased=None, keepdims=False, *, correction=None):
    """(variance, mean) over axes, in one go. As PyTorch has it: the correction is 1 unless given.

    >>> td.var_mean(td.tensor([1.0, 3.0]))
    (tensor(2.), tensor(2.))
    """
    return _moments("var_mean", x, axis, correction, unbiased, keepdims, 1)


@op
@in_float32
def std_mean(x: Tensor, axis: Axes = None, unbiased=None, keepdims=False, *, correction=None):
    """(standard deviation, mean) over axes, in one go. As PyTorch has it: the correction is 1 unless given.

    >>> td.std_mean(td.tensor([1.0, 3.0]), correction=0)
    (tensor(1.), tensor(2.))
    """
    variance, mean = _moments("std_mean", x, axis, correction, unbiased, keepdims, 1)
    return _root(variance), mean


def _as_pytorch(function):
    """The method: PyTorch's default for the correction, and x.var(False) for unbiased=False."""

    def summary(x, axis=None, unbiased=None, keepdims=False, *, correction=None, dim=None, keepdim=False):
        if isinstance(axis, bool):
            axis, unbiased = None, axis
        if correction is None and unbiased is None:
            correction = 1
        axis = axis if dim is None else dim
        if isinstance(axis, (tuple, list)) and not axis and promotion.axes_first():
            axis = None
        return function(x, axis, unbiased, bool(keepdims or keepdim), correction=correction)

    summary.__name__ = summary.__qualname__ = function.__name__
    summary.__doc__ = f"td.{function.__name__} with a correction of 1 unless given, as in PyTorch."
    method(summary)


_as_pytorch(var)
_as_pytorch(std)


@op
@in_float32
def logsumexp(x: Tensor, axis: Axes = None, keepdims=False):
    """log of the sum of exp over axes (all by default), without overflow.

    >>> td.logsumexp(td.tensor([1000.0, 1000.0]))
    tensor(1000.6932)
    """
    x = to_float(x)
    axes = normalize_axes("logsumexp", axis, x.ndim)
    if product(x.shape[a] for a in axes) == 0:
        return F.log(F.sum(x, axes, keepdims=keepdims))  # of an empty sum: minus infinity
    top = F.amax(F.real(x) if x.dtype.is_complex else x, axes, keepdims=True)
    top = F.stop_gradient(F.where(F.isfinite(top), top, 0))
    total = F.log(F.sum(F.exp(x - top), axes, keepdims=True)) + top
    return total if keepdims or not axes else F.squeeze(total, axes)


@op
def vector_norm(x: Tensor, ord=2, axis: Axes = None, keepdims=False, *, dtype=None):
    """(sum of |x| ** ord) ** (1 / ord) over axes (all by default); ord may be infinite (the largest |x|), -inf (the smallest) or 0
    (how many are not zero). The gradient at a zero vector is 0.

    >>> td.vector_norm(td.tensor([3.0, 4.0]))
    tensor(5.)
    """
    x = cast(x, dtypes.as_dtype(dtype)) if dtype is not None else to_float(x)
    return cast(_vector_norm(widen(x), ord, axis, keepdims), dtypes.part_dtype(x.dtype))


def _vector_norm(x: Value, ord, axis, keepdims: bool) -> Value:
    axes = normalize_axes("vector_norm", axis, x.ndim)
    if ord == 2:
        squares = F.square(real_of(x)) + F.square(imag_of(x)) if x.dtype.is_complex else x * x
        return _root(F.sum(squares, axes, keepdims=keepdims))
    if ord == 0:
        return cast(F.count_nonzero(x, axes, keepdims), dtypes.part_dtype(x.dtype))
    size = F.abs(x)
    if ord == math.inf:
        if product(x.shape[a] for a in axes) == 0:
            return F.sum(size, axes, keepdims=keepdims)
        return F.amax(size, axes, keepdims)
    if ord == -math.inf:
        return F.amin(size, axes, keepdims)
    if ord == 1:
        return F.sum(size, axes, keepdims=keepdims)
    powers = F.power(size, ord)
    if ord < 1:  # whose derivative at 0 is infinite, or has no sign: nothing flows there
        zero = F.equal(size, 0)
        powers = F.where(zero, math.inf if ord < 0 else 0, F.power(F.where(zero, 1, size), ord))
    total = F.sum(powers, axes, keepdims=keepdims)
    if ord < 0:
        infinite = F.equal(total, math.inf)  # of a zero among the elements
        return F.where(infinite, 0, F.power(F.where(infinite, 1, total), 1 / ord))
    zero = F.equal(total, 0)
    return F.where(zero, 0, F.power(F.where(zero, 1, total), 1 / ord))


@op
def norm(x: Tensor, p="fro", axis: Axes = None, keepdims=False, *, dtype=None):
    """Norm of the elements over axes (all by default) as one vector; p is a number, infinite, or "fro", which is 2.

    >>> td.norm(td.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(5.)
    """
    if isinstance(p, str):
        if p == "nuc":
            raise ValueRangeError(
                "norm", "the nuclear norm is no norm of vectors", fix="use td.linalg.matrix_norm(x, 'nuc')"
            )
        p = 2 if p == "fro" else float(p)
    return F.vector_norm(x, 2 if p is None else p, axis, keepdims, dtype=dtype)


@op
def diff(x: Tensor, n=1, axis=-1, prepend: Tensor | None = None, append: Tensor | None = None):
    """Differences of neighbours along an axis, n times over.

    >>> td.diff(td.tensor([1, 4, 9]))
    tensor([3, 5])
    """
    if n < 0:
        raise ValueRangeError("diff", f"n is {n}; it must not be negative")
    if n == 0:
        return F.Copy()(x)
    axis = normalize_axis("diff", axis, x.ndim)
    parts = [
        p if p is None or p.ndim else F.expand(p, (*x.shape[:axis], 1, *x.shape[axis + 1 :])) for p in (prepend, append)
    ]
    if parts[0] is not None or parts[1] is not None:
        x = F.concat([p for p in (parts[0], x, parts[1]) if p is not None], axis)
    for _ in range(n):
        size = x.shape[axis]
        if size <= 1:
            return F.full((*x.shape[:axis], 0, *x.shape[axis + 1 :]), 0, dtype=x.dtype)
        later, earlier = F.slice_axis(x, axis, 1, size - 1), F.slice_axis(x, axis, 0, size - 1)
        x = F.not_equal(later, earlier) if x.dtype.kind == "bool" else later - earlier
    return x
