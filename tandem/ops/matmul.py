"""Matrix products."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem.errors import ShapeError
from tandem.graph.ir import Type
from tandem.graph.symbolic import product
from tandem.ops.complexes import bilinear
from tandem.ops.define import LibraryOp, op, register
from tandem.ops.movement import Permute, Reshape
from tandem.ops.prepare import broadcast_shapes, full_expand, promote, show, show_shape


def _swap(x):
    return Permute(tuple(range(x.ndim - 2)) + (x.ndim - 1, x.ndim - 2))(x)


@register
class Matmul(LibraryOp):
    """(*b, m, k) @ (*b, k, n) -> (*b, m, n), batch sizes equal. A third input (n) is added to every row."""

    low_precision = True
    name = "matmul"
    takes_complex = True
    routine = "matmul"
    cuda_library = "cublas"
    takes = "T[*b,m,k] T[*b,k,n] T[n]?"

    def infer(self, a: Type, b: Type, *bias: Type) -> Type:
        return a.with_shape(a.shape[:-1] + b.shape[-1:])

    def operations(self, inputs, outputs) -> int:
        return 2 * math.prod(outputs[0]) * inputs[0][-1]

    def split_complex(self, a, b, *bias):
        out = bilinear(Matmul(), a, b)
        return F.add(out, bias[0]) if bias else out

    def grad(self, g, a, b, *bias):
        return Matmul()(g, _swap(b)), Matmul()(_swap(a), g), *(sum_rows(g) for _ in bias)


def sum_rows(g):
    """The sum over all axes but the last."""
    return Reshape(g.shape[-1:])(F.Reduce("sum", tuple(range(g.ndim - 1)))(g))


@op
def matmul(x: Tensor, y: Tensor):
    """Matrix product, batched over leading axes, which broadcast; 1-d operands are vectors.

    x: (*b, m, k), y: (*b, k, n) -> (*b, m, n)

    >>> td.matmul(td.tensor([[1.0, 2.0]]), td.tensor([[3.0], [4.0]]))
    tensor([[11.]])
    """
    a, b = promote(x, y)
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(
            "matmul",
            f"x is {show_shape(a.shape)} and y is {show_shape(b.shape)}; both need at least one axis",
            fix="use multiply for scalars",
        )
    vector_a, vector_b = a.ndim == 1, b.ndim == 1
    if vector_a:
        a = Reshape((1, a.shape[0]))(a)
    if vector_b:
        b = Reshape((b.shape[0], 1))(b)
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            "matmul",
            f"x is {show_shape(x.shape)} and y is {show_shape(y.shape)}; the last axis of x ({show(a.shape[-1])}) must equal "
            f"the {'only' if vector_b else 'second-to-last'} axis of y ({show(b.shape[-2])})",
            fix="pass y.mT if the matrix is stored (out, in)" if not vector_b else None,
        )
    if (
        a.dtype.is_complex and (vector_a or vector_b) and a.ndim <= 2 and b.ndim <= 2
    ):  # one pass over memory, in one kernel
        if vector_b:
            out = F.sum(a * F.Expand(a.shape)(Permute((1, 0))(b)), -1)
            return Reshape(())(out) if vector_a else out
        return F.sum(F.Expand(b.shape)(Permute((1, 0))(a)) * b, 0)
    if b.ndim == 2 and a.ndim > 2:  # one matrix for all: one large product instead of many, and no broadcast gradient
        rows = Reshape((product(a.shape[:-1]), a.shape[-1]))(a)
        out = Matmul()(rows, b)
        return Reshape(a.shape[:-1] + (() if vector_b else b.shape[-1:]))(out)
    batch = broadcast_shapes("matmul", a.shape[:-2], b.shape[:-2])
    a = full_expand(a, batch + a.shape[-2:])
    b = full_expand(b, batch + b.shape[-2:])
    out = Matmul()(a, b)
    if vector_a or vector_b:
        shape = out.shape[:-2] + (() if vector_a else out.shape[-2:-1]) + (() if vector_b else out.shape[-1:])
        out = Reshape(shape)(out)
    return out
