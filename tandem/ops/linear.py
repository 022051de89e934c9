"""Linear maps and products of vectors and matrices."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem.errors import ShapeError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import product
from tandem.ops.define import Composite, alias, inplace, op, register
from tandem.ops.matmul import sum_rows
from tandem.ops.precision import in_float32
from tandem.ops.prepare import (
    as_value,
    broadcast,
    normalize_axis,
    promote,
    require_fit,
    result_dtype,
    show,
    show_shape,
    to_float,
    with_weights,
)  # fmt: skip


@register
class Linear(Composite):
    """x (m, k), w (n, k)[, bias (n)] -> x @ w.T + bias. The gradient of w comes out in w's own layout."""

    low_precision = True
    name = "linear"
    takes_complex = True
    takes = "T[s,k] T[n,k] T[n]?"

    def infer(self, x: Type, w: Type, *bias: Type) -> Type:
        return x.with_shape((x.shape[0], w.shape[0]))

    def operations(self, inputs, outputs) -> int:
        return 2 * math.prod(outputs[0]) * inputs[0][-1]

    def expand(self, x, w, *bias):
        return F.Matmul()(x, F.Permute((1, 0))(w), *bias)

    def grad(self, g, x, w, *bias):
        return F.Matmul()(g, w), F.Matmul()(F.Permute((1, 0))(g), x), *(sum_rows(g) for _ in bias)


@op(method=False)
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None):
    """x @ weight.T + bias.

    x: (*s, k); weight: (n, k) or (k); bias: (n) or () -> (*s, n) or (*s)

    >>> td.linear(td.tensor([1.0, 2.0]), td.tensor([[1.0, 1.0], [0.0, 1.0]]), td.tensor([0.5, 0.5]))
    tensor([3.5000, 2.5000])
    """
    x, weight, bias = with_weights("linear", as_value(x), as_value(weight), bias)
    rest = () if bias is None else (bias,)
    if x.ndim == 0 or weight.ndim not in (1, 2) or x.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            "linear",
            f"x is {show_shape(x.shape)} and weight is {show_shape(weight.shape)}; weight must be (n, k) for an x whose "
            "last axis has size k",
        )
    if weight.ndim == 1:
        y = F.matmul(x, weight)
        return y + rest[0] if rest else y
    if rest and (rest[0].ndim != 1 or rest[0].shape[0] != weight.shape[0]):
        raise ShapeError(
            "linear",
            f"bias is {show_shape(rest[0].shape)} and must be ({show(weight.shape[0])},), as weight is {show_shape(weight.shape)}",
        )
    rows = x if x.ndim == 2 else F.Reshape((product(x.shape[:-1]), x.shape[-1]))(x)
    y = Linear()(rows, weight, *rest)
    return y if x.ndim == 2 else F.Reshape((*x.shape[:-1], weight.shape[0]))(y)


@op(method=False)
def bilinear(x1: Tensor, x2: Tensor, weight: Tensor, bias: Tensor | None = None):
    """x1 @ weight[o] @ x2 for each output o, plus bias.

    x1: (*s, m), x2: (*s, n), weight: (o, m, n), bias: (o) -> (*s, o)

    >>> td.bilinear(td.tensor([1.0, 2.0]), td.tensor([3.0]), td.ones(1, 2, 1))
    tensor([9.])
    """
    x1, x2, weight, bias = with_weights("bilinear", x1, x2, weight, bias)
    if weight.ndim != 3 or x1.ndim != x2.ndim or x1.shape[-1] != weight.shape[1] or x2.shape[-1] != weight.shape[2]:
        raise ShapeError(
            "bilinear",
            f"x1 is {show_shape(x1.shape)}, x2 {show_shape(x2.shape)} and weight {show_shape(weight.shape)}; "
            "they must be (*s, m), (*s, n) and (o, m, n)",
        )
    lead, (outputs, m, n) = x1.shape[:-1], weight.shape
    rows = product(lead)
    partial = F.matmul(F.Reshape((rows, m))(x1), F.Reshape((m, outputs * n))(F.Permute((1, 0, 2))(weight)))
    y = F.sum(F.Reshape((rows, outputs, n))(partial) * F.Reshape((rows, 1, n))(x2), -1, dtype=partial.dtype)
    y = F.Reshape((*lead, outputs))(y)
    return y if bias is None else y + bias


# -- products by their number of axes


def _axes(name: str, **operands):
    """Checks numbers of axes: _axes("mm", x=(x, 2), y=(y, 2))."""
    for what, (value, ndim) in operands.items():
        if value.ndim != ndim:
            raise ShapeError(
                name, f"{what} is {show_shape(value.shape)}; it must have {ndim} {'axis' if ndim == 1 else 'axes'}"
            )


@op
def mm(x: Tensor, y: Tensor):
    """Product of two matrices.

    x: (m, k), y: (k, n) -> (m, n)

    >>> td.mm(td.tensor([[1.0, 2.0]]), td.tensor([[3.0], [4.0]]))
    tensor([[11.]])
    """
    _axes("mm", x=(x, 2), y=(y, 2))
    return F.matmul(x, y)


@op
def bmm(x: Tensor, y: Tensor):
    """Products of matrices, pair by pair.

    x: (b, m, k), y: (b, k, n) -> (b, m, n)

    >>> td.bmm(td.ones(2, 1, 3), td.ones(2, 3, 1)).shape
    (2, 1, 1)
    """
    _axes("bmm", x=(x, 3), y=(y, 3))
    if x.shape[0] != y.shape[0]:
        raise ShapeError(
            "bmm",
            f"x is {show_shape(x.shape)} and y {show_shape(y.shape)}; both must hold the same number of matrices",
            fix="use matmul, which broadcasts",
        )
    return F.matmul(x, y)


@op
def mv(x: Tensor, y: Tensor):
    """Product of a matrix and a vector.

    x: (m, k), y: (k) -> (m)

    >>> td.mv(td.tensor([[1.0, 2.0], [3.0, 4.0]]), td.tensor([1.0, 1.0]))
    tensor([3., 7.])
    """
    _axes("mv", x=(x, 2), y=(y, 1))
    return F.matmul(x, y)


@op
def dot(x: Tensor, y: Tensor):
    """Inner product of two vectors.

    x, y: (n) -> ()

    >>> td.dot(td.tensor([1.0, 2.0]), td.tensor([3.0, 4.0]))
    tensor(11.)
    """
    _axes("dot", x=(x, 1), y=(y, 1))
    if x.shape[0] != y.shape[0]:
        raise ShapeError("dot", f"x has {show(x.shape[0])} elements and y {show(y.shape[0])}")
    x, y = promote(x, y)
    return F.sum(x * y, dtype=x.dtype)


@op
def vdot(x: Tensor, y: Tensor):
    """Inner product of two vectors; of complex ones, x is conjugated.

    x, y: (n) -> ()

    >>> td.vdot(td.tensor([1.0, 2.0]), td.tensor([3.0, 4.0]))
    tensor(11.)
    """
    return F.dot(F.conj(x) if x.dtype.is_complex else x, y)


@op
def vecdot(x: Tensor, y: Tensor, *, axis=-1):
    """Inner products along an axis; the others broadcast.

    x: (*s, n), y: (*s, n) -> (*s)

    >>> td.vecdot(td.tensor([[1.0, 2.0], [3.0, 4.0]]), td.tensor([1.0, 1.0]))
    tensor([3., 7.])
    """
    if x.ndim == 0 or y.ndim == 0 or not -min(x.ndim, y.ndim) <= axis < 0:
        raise ShapeError(
            "vecdot",
            f"axis {axis} of x {show_shape(x.shape)} and y {show_shape(y.shape)}: it must be a negative axis that both have",
        )
    if x.shape[axis] != y.shape[axis]:
        raise ShapeError(
            "vecdot", f"axis {axis} has {show(x.shape[axis])} elements in x and {show(y.shape[axis])} in y"
        )
    x, y = promote(F.conj(x) if x.dtype.is_complex else x, y)
    return F.sum(x * y, axis, dtype=x.dtype)


@op
def outer(x: Tensor, y: Tensor):
    """Every element of x times every element of y.

    x: (m), y: (n) -> (m, n)

    >>> td.outer(td.tensor([1.0, 2.0]), td.tensor([3.0, 4.0]))
    tensor([[3., 4.],
            [6., 8.]])
    """
    _axes("outer", x=(x, 1), y=(y, 1))
    return F.Reshape((x.shape[0], 1))(x) * F.Reshape((1, y.shape[0]))(y)


@in_float32
def _scaled_sum(name: str, input: Value, product_: Value, beta, alpha) -> Value:
    dtype = result_dtype(input, product_)
    require_fit(name, "beta", beta, dtype)
    require_fit(name, "alpha", alpha, dtype)
    if alpha != 1:
        product_ = product_ * alpha
    if beta == 0:  # input does not count at all, not even its NaN
        return product_
    return product_ + (input if beta == 1 else input * beta)


@op
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta=1, alpha=1):
    """beta * input + alpha * (mat1 @ mat2).

    input: broadcasts to (m, n), mat1: (m, k), mat2: (k, n) -> (m, n)

    >>> td.addmm(td.tensor([1.0]), td.tensor([[1.0, 2.0]]), td.tensor([[3.0], [4.0]]))
    tensor([[12.]])
    """
    _axes("addmm", mat1=(mat1, 2), mat2=(mat2, 2))
    if (
        beta == 1
        and alpha == 1
        and input.ndim == 1
        and input.shape[0] == mat2.shape[1]
        and mat1.shape[1] == mat2.shape[0]
    ):
        input, mat1, mat2 = promote(input, mat1, mat2)
        return F.Matmul()(mat1, mat2, input)
    return _scaled_sum("addmm", input, F.matmul(mat1, mat2), beta, alpha)


@op
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta=1, alpha=1):
    """beta * input + alpha * (batch1 @ batch2), matrix by matrix.

    input: broadcasts to (b, m, n), batch1: (b, m, k), batch2: (b, k, n) -> (b, m, n)

    >>> td.baddbmm(td.ones(1, 1, 1), td.ones(1, 1, 2), td.ones(1, 2, 1))
    tensor([[[3.]]])
    """
    return _scaled_sum("baddbmm", input, F.bmm(batch1, batch2), beta, alpha)


@op
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta=1, alpha=1):
    """beta * input + alpha * (mat @ vec).

    input: broadcasts to (m), mat: (m, k), vec: (k) -> (m)

    >>> td.addmv(td.ones(1), td.ones(1, 2), td.ones(2))
    tensor([3.])
    """
    return _scaled_sum("addmv", input, F.mv(mat, vec), beta, alpha)


# -- distances


@op(method=False)
@in_float32
def cosine_similarity(x1: Tensor, x2: Tensor, axis=1, eps=1e-8):
    """Cosine of the angle between vectors along an axis; norms count as eps where they are smaller.

    x1, x2: broadcastable -> (*broadcast without axis)

    >>> td.cosine_similarity(td.tensor([1.0, 0.0]), td.tensor([1.0, 1.0]), axis=0)
    tensor(0.7071)
    """
    x1, x2 = broadcast("cosine_similarity", *promote(to_float(x1), to_float(x2)))
    axis = normalize_axis("cosine_similarity", axis, x1.ndim)
    norms = [F.clip(F.vector_norm(x, 2, axis), eps) for x in (x1, x2)]
    return F.sum(x1 * x2, axis) / (norms[0] * norms[1])


@op(method=False)
@in_float32
def pairwise_distance(x1: Tensor, x2: Tensor, p=2.0, eps=1e-6, keepdims=False):
    """p-norm of x1 - x2 + eps along the last axis.

    x1, x2: (*s, d) -> (*s)

    >>> td.pairwise_distance(td.tensor([1.0, 2.0]), td.tensor([4.0, 6.0]))
    tensor(5.0000)
    """
    x1, x2 = broadcast("pairwise_distance", *promote(to_float(x1), to_float(x2)))
    return F.vector_norm(x1 - x2 + eps, p, -1, keepdims)


for function in (addmm, baddbmm, addmv):
    inplace(function)
alias("ger", outer)
