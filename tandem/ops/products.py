"""Products of matrices and vectors that PyTorch has names for, beyond those of linear.py."""

from __future__ import annotations

import functools

import tandem.ops as F
from tandem.errors import ShapeError
from tandem.ops.define import as_tensor, inplace, op, public
from tandem.ops.linear import _axes, _scaled_sum
from tandem.ops.prepare import promote, show_shape


@op
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta=1, alpha=1):
    """beta * input + alpha * (the sum of all products batch1[i] @ batch2[i]).

    input: broadcasts to (m, n), batch1: (b, m, k), batch2: (b, k, n) -> (m, n)

    >>> td.addbmm(td.ones(1, 1), td.ones(2, 1, 3), td.ones(2, 3, 1))
    tensor([[7.]])
    """
    _axes("addbmm", batch1=(batch1, 3), batch2=(batch2, 3))
    b, m, k = batch1.shape
    if batch2.shape[0] != b or batch2.shape[1] != k:
        raise ShapeError(
            "addbmm",
            f"batch1 is {show_shape(batch1.shape)} and batch2 {show_shape(batch2.shape)}; they must be (b, m, k) and (b, k, n)",
        )
    # One product over the batch and k together.
    wide = F.Reshape((m, b * k))(F.Permute((1, 0, 2))(batch1))
    tall = F.Reshape((b * k, batch2.shape[2]))(batch2)
    return _scaled_sum("addbmm", input, F.matmul(wide, tall), beta, alpha)


@op
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta=1, alpha=1):
    """beta * input + alpha * (the outer product of vec1 and vec2).

    input: broadcasts to (m, n), vec1: (m), vec2: (n) -> (m, n)

    >>> td.addr(td.ones(1, 2), td.tensor([2.0]), td.tensor([3.0, 4.0]))
    tensor([[7., 9.]])
    """
    return _scaled_sum("addr", input, F.outer(vec1, vec2), beta, alpha)


@op
def inner(x: Tensor, y: Tensor):
    """Sums of products over the last axes; the product if one of the two has no axes.

    x: (*a, n), y: (*b, n) -> (*a, *b)

    >>> td.inner(td.tensor([1, 2]), td.tensor([[3, 4], [5, 6]]))
    tensor([11, 17])
    """
    if x.ndim == 0 or y.ndim == 0:
        return F.multiply(x, y)
    if x.shape[-1] != y.shape[-1]:
        raise ShapeError("inner", f"the last axes of x {show_shape(x.shape)} and y {show_shape(y.shape)} must agree")
    return F.tensordot(x, y, ((-1,), (-1,)))


@op
def kron(x: Tensor, y: Tensor):
    """Kronecker's product: y in place of every element of x, times that element.

    x: (a1, .., an), y: (b1, .., bn) -> (a1 * b1, .., an * bn); missing axes come first

    >>> td.kron(td.tensor([1, 10]), td.tensor([1, 2]))
    tensor([ 1,  2, 10, 20])
    """
    x, y = promote(x, y)
    ndim = max(x.ndim, y.ndim)
    a, b = ((1,) * (ndim - v.ndim) + v.shape for v in (x, y))
    first = F.Reshape(tuple(d for n in a for d in (n, 1)))(x)
    second = F.Reshape(tuple(d for n in b for d in (1, n)))(y)
    return F.Reshape(tuple(m * n for m, n in zip(a, b, strict=True)))(F.multiply(first, second))


@op(name="block_diag", hidden=True)
def _block_diag(tensors: Tensors):
    blocks = promote(*tensors)
    blocks = [F.Reshape((1,) * (2 - b.ndim) + b.shape)(b) for b in blocks]
    columns = functools.reduce(lambda total, b: total + b.shape[1], blocks, 0)
    rows, start = [], 0
    for b in blocks:
        rows.append(F.pad(b, (start, columns - start - b.shape[1])))
        start = start + b.shape[1]
    return F.concat(rows, 0)


@public
def block_diag(*tensors):
    """A matrix with the given ones along its diagonal and zeros elsewhere; vectors count as rows.

    >>> td.block_diag(td.ones(1, 2), td.tensor([[7.0]]))
    tensor([[1., 1., 0.],
            [0., 0., 7.]])
    """
    tensors = [as_tensor("block_diag", "a tensor", t) for t in tensors]
    for i, t in enumerate(tensors):
        if t.ndim > 2:
            raise ShapeError("block_diag", f"tensor {i} has {t.ndim} axes; at most 2 are possible")
    return _block_diag(tensors) if tensors else F.full((1, 0), 0.0)


@public
def chain_matmul(*matrices):
    """The product of several matrices, in the order that takes the fewest multiplications.

    >>> td.chain_matmul(td.ones(1, 2), td.ones(2, 3), td.ones(3, 1))
    tensor([[6.]])
    """
    if len(matrices) == 1 and isinstance(matrices[0], (tuple, list)):
        matrices = tuple(matrices[0])
    matrices = tuple(as_tensor("chain_matmul", "a matrix", m) for m in matrices)
    for i, m in enumerate(matrices):
        if m.ndim != 2:
            raise ShapeError("chain_matmul", f"operand {i} has {m.ndim} axes; all must be matrices")
    if not matrices:
        raise ShapeError("chain_matmul", "there is nothing to multiply")
    sizes = [m.shape[0] for m in matrices] + [matrices[-1].shape[1]]
    count = len(matrices)
    cost, split = {(i, i): 0 for i in range(count)}, {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            ways = [(cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)]
            cost[i, j], split[i, j] = min(ways)

    def multiply(i, j):
        return matrices[i] if i == j else F.matmul(multiply(i, split[i, j]), multiply(split[i, j] + 1, j))

    return multiply(0, count - 1)


inplace(addbmm)
inplace(addr)
