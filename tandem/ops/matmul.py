"""Matrix products."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem.errors import ShapeError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import Dim, product
from tandem.ops.complexes import bilinear
from tandem.ops.define import LibraryOp, op, register
from tandem.ops.movement import Permute, Reshape
from tandem.ops.prepare import broadcast_shapes, full_expand, promote, show, show_shape


def _swap(x):
    return Permute(tuple(range(x.ndim - 2)) + (x.ndim - 1, x.ndim - 2))(x)


def is_transposed(x: Value) -> bool:
    """Whether x is another value with its last two axes swapped."""
    n = x.ndim - 2
    return isinstance(x.op, Permute) and x.ndim >= 2 and tuple(x.op.axes) == (*range(n), n + 1, n)


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
        db = _swap(Matmul()(_swap(g), a)) if is_transposed(b) else Matmul()(_swap(a), g)  # in memory as what b shows
        return Matmul()(g, _swap(b)), db, *(sum_rows(g) for _ in bias)


def _is_one(n: Dim) -> bool:
    return type(n) is int and n == 1


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
    out = _of_fewer(a, b, batch)
    if out is None:
        out = Matmul()(full_expand(a, batch + a.shape[-2:]), full_expand(b, batch + b.shape[-2:]))
    if vector_a or vector_b:
        shape = out.shape[:-2] + (() if vector_a else out.shape[-2:-1]) + (() if vector_b else out.shape[-1:])
        out = Reshape(shape)(out)
    return out


# Note [Batch axes of one operand]
# Along a batch axis that only one operand has, the other is the same matrix again and again. Where that axis can join the rows or
# the columns, one product takes the place of many, and the other operand's gradient is a product over it, not a sum of products.
# Joining is worth it where the many have a vector for an operand (then they are slow, and results are small), or where the joined
# matrix lies in memory as the many do.
def _of_fewer(a: Value, b: Value, batch: tuple) -> Value | None:
    """a @ b with batch axes of one operand among its rows or columns, or None where they are better left as they are."""
    a, b = (Reshape((1,) * (len(batch) + 2 - x.ndim) + x.shape)(x) if x.ndim < len(batch) + 2 else x for x in (a, b))
    alone = [i for i, n in enumerate(batch) if not _is_one(n)]
    left = [i for i in alone if _is_one(b.shape[i])]
    right = [i for i in alone if _is_one(a.shape[i])]
    both = [i for i in alone if i not in left and i not in right]
    row, column = _is_one(a.shape[-2]), _is_one(b.shape[-1])
    if column and right:  # the results' rows, as they follow one another in memory, are the left operand's
        return _swap(_joined(_swap(b), _swap(a), batch, both, right, left, as_rows=True))
    if (row and left) or (left and not right and left[0] > max(both, default=-1)):
        return _joined(a, b, batch, both, left, right)
    return None


def _joined(a: Value, b: Value, batch: tuple, both: list, left: list, right: list, as_rows: bool = False) -> Value:
    """a @ b, (*batch, m, n), as the product of (*both, left and m, k) and (*both, k, right and n). as_rows: the columns of b are
    rows in memory, where they can be joined without a copy."""
    m, n = len(batch), len(batch) + 1
    size = {**dict(enumerate(batch)), m: a.shape[-2], n: b.shape[-1]}
    sizes = lambda axes: tuple(size[i] for i in axes)
    k = a.shape[-1]
    rows, columns = [*left, m], [*right, n]
    ones = [i for i in range(len(batch)) if _is_one(batch[i])]
    x = Permute((*both, *rows, *ones, *right, n))(a)
    y = Permute((*both, *columns, m, *ones, *left) if as_rows else (*both, m, *columns, *ones, *left))(b)
    x = Reshape((*sizes(both), product(sizes(rows)), k))(x)
    if as_rows:
        y = _swap(Reshape((*sizes(both), product(sizes(columns)), k))(y))
    else:
        y = Reshape((*sizes(both), k, product(sizes(columns))))(y)
    out = Reshape(sizes(both) + sizes(rows) + sizes(columns) + (1,) * len(ones))(Matmul()(x, y))
    order = [*both, *rows, *columns, *ones]
    return Permute(tuple(order.index(i) for i in range(len(order))))(out)
