"""Norms of matrices, and condition numbers."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.ops.define import op
from tandem.ops.linalg.prepare import matrices, square
from tandem.ops.linalg.solve import Inverse
from tandem.ops.linalg.spectral import Svdvals
from tandem.ops.prepare import cast, normalize_axis, show_shape, to_float

_ORDERS = ("fro", "nuc", math.inf, -math.inf, 1, -1, 2, -2)


def _matrix_norm(name: str, x: Value, ord, keepdims: bool) -> Value:
    """Of the last two axes."""
    if ord not in _ORDERS:
        raise ValueRangeError(name, f"ord is {ord!r}; norms of matrices are 'fro', 'nuc', inf, -inf, 1, -1, 2 and -2")
    if ord == "fro":
        return F.vector_norm(x, 2, (-2, -1), keepdims)
    if ord in ("nuc", 2, -2):
        x = matrices(name, x)
        s = Svdvals()(x)
        if ord == "nuc":
            result = F.sum(s, -1)
        elif x.shape[-1] == 0 or x.shape[-2] == 0:
            if ord == -2:
                raise ShapeError(
                    name, f"x is {show_shape(x.shape)}; matrices without elements have no smallest singular value"
                )
            result = F.sum(s, -1)
        else:
            result = F.slice_axis(s, -1, 0 if ord == 2 else s.shape[-1] - 1, 1)
            result = F.Reshape(s.shape[:-1])(result)
        return F.Reshape((*result.shape, 1, 1))(result) if keepdims else result
    along, other = (-2, -1) if abs(ord) == 1 else (-1, -2)  # sums of columns, or of rows
    if x.shape[other] == 0:
        if ord < 0:
            raise ShapeError(name, f"x is {show_shape(x.shape)}; there is no smallest of no sums")
        sums = F.sum(F.abs(x), (-2, -1), keepdims=True)
    else:
        sums = F.sum(F.abs(x), along, keepdims=True)
        sums = F.amax(sums, other, True) if ord > 0 else F.amin(sums, other, True)
    return sums if keepdims else F.squeeze(sums, (-2, -1))


def _as_dtype(x: Value, dtype) -> Value:
    return to_float(x) if dtype is None else cast(x, dtypes.as_dtype(dtype))


@op(hidden=True)
def matrix_norm(x: Tensor, ord="fro", axis=(-2, -1), keepdims=False, *, dtype=None):
    """Norm of matrices: "fro" (root of the sum of squares), "nuc" (sum of singular values), inf and -inf (largest and smallest sum
    of a row's absolute values), 1 and -1 (of a column's), 2 and -2 (largest and smallest singular value).

    x: (*b, m, n) -> (*b)

    >>> td.linalg.matrix_norm(td.tensor([[1.0, 2.0], [3.0, 4.0]]), ord=1)
    tensor(6.)
    """
    x = _as_dtype(x, dtype)
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if x.ndim < 2 or len(axes) != 2:
        raise ShapeError("matrix_norm", f"x is {show_shape(x.shape)} and axis {axes}; a matrix has two axes")
    a, b = (normalize_axis("matrix_norm", i, x.ndim) for i in axes)
    if a == b:
        raise ValueRangeError("matrix_norm", f"axis {axes} names an axis twice")
    if (a, b) != (x.ndim - 2, x.ndim - 1):
        x = F.Permute((*(i for i in range(x.ndim) if i not in (a, b)), a, b))(x)
    result = _matrix_norm("matrix_norm", x, ord, False)
    if keepdims:
        for i in sorted((a, b)):
            result = F.unsqueeze(result, i)
    return result


@op(hidden=True)
def norm(x: Tensor, ord=None, axis=None, keepdims=False, *, dtype=None):
    """Norm of a vector or a matrix: of all elements as a vector by default; with ord, of a 1-d x as a vector and of a 2-d one as a
    matrix; over one axis as vectors, over two as matrices (as vectors without ord).

    >>> td.linalg.norm(td.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(5.)
    """
    if axis is None:
        if ord is None:
            return F.vector_norm(_as_dtype(x, dtype), 2, None, keepdims)
        if x.ndim not in (1, 2):
            raise ShapeError(
                "norm",
                f"x is {show_shape(x.shape)}; with ord and without axis it must have 1 or 2 axes",
                fix="name the axis",
            )
        axis = tuple(range(x.ndim)) if x.ndim == 2 else 0
    if isinstance(axis, (tuple, list)) and len(axis) == 2 and ord is not None:
        return matrix_norm(x, ord, tuple(axis), keepdims, dtype=dtype)
    if isinstance(ord, str):
        raise ValueRangeError("norm", f"ord is {ord!r}, a norm of matrices, but axis is {axis}", fix="name two axes")
    return F.vector_norm(_as_dtype(x, dtype), 2 if ord is None else ord, axis, keepdims)


@op(hidden=True)
def cond(x: Tensor, p=None):
    """Condition numbers: norm(x, p) * norm(inv(x), p), with the 2-norm by default, for which x need not be square nor regular.

    x: (*b, m, n) -> (*b)

    >>> td.linalg.cond(td.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor(2.)
    """
    if p in (None, 2, -2):
        x = matrices("cond", x)
        s = Svdvals()(x)
        if x.shape[-1] == 0 or x.shape[-2] == 0:
            return F.full(x.shape[:-2], 0, dtype=s.dtype)
        first, last = (F.Reshape(s.shape[:-1])(F.slice_axis(s, -1, i, 1)) for i in (0, s.shape[-1] - 1))
        return last / first if p == -2 else first / last
    x = square("cond", x)
    inverse, info = Inverse(False)(x)
    value = _matrix_norm("cond", x, p, False) * _matrix_norm("cond", inverse, p, False)
    return F.where(F.equal(info, 0), value, math.inf)
