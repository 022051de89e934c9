"""Functions of sparse tensors with PyTorch's names: td.sparse.mm, td.sparse.softmax and others."""

from __future__ import annotations

import tandem.ops as F
from tandem.errors import ShapeError, UnsupportedError
from tandem.ops.prepare import normalize_axis
from tandem.sparse.structure import structure
from tandem.sparse.tensor import SparseTensor, _flatten, sparse_coo_tensor, sparse_csr


def mm(mat1, mat2, reduce: str = "sum"):
    """Product of two matrices of which one at least is sparse; the gradient of a sparse one is sparse.

    reduce: of a sparse matrix with a dense one: "sum", "mean", "amax" or "amin" of what each row would add up.

    >>> td.sparse.mm(td.eye(2).to_sparse(), td.tensor([[1.0], [2.0]]))
    tensor([[1.],
            [2.]])
    """
    if reduce == "sum":
        return F.mm(mat1, mat2)
    if reduce not in ("mean", "amax", "amin") or isinstance(mat2, SparseTensor) or not isinstance(mat1, SparseTensor):
        raise UnsupportedError(
            "sparse.mm", f"reduce is {reduce!r}; of sparse and dense it may be sum, mean, amax or amin"
        )
    row, column = mat1._indices()[0], mat1._indices()[1]
    entries = F.unsqueeze(mat1._values(), -1) * mat2[column]
    zeros = F.full((mat1.shape[0], mat2.shape[1]), 0, dtype=entries.dtype, device=entries.device)
    return F.index_reduce(zeros, 0, row, entries, reduce, include_self=False)


def addmm(mat, mat1, mat2, *, beta=1.0, alpha=1.0):
    """beta * mat + alpha * (mat1 @ mat2), where mat1 is sparse."""
    return F.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def sampled_addmm(input, mat1, mat2, *, beta=1.0, alpha=1.0):
    """beta * input + alpha * (mat1 @ mat2) at the places of a sparse matrix, without computing the other elements.

    input: (n, k) sparse, mat1: (n, d), mat2: (d, k) -> (n, k) sparse

    >>> mask = td.eye(2).to_sparse_csr()
    >>> td.sparse.sampled_addmm(mask, td.ones(2, 3), td.ones(3, 2), beta=0.0).values()
    tensor([3., 3.])
    """
    if not isinstance(input, SparseTensor):
        raise UnsupportedError("sampled_addmm", "input is dense; it must be sparse", fix="input.to_sparse_csr()")
    if (
        mat1.ndim != 2
        or mat2.ndim != 2
        or mat1.shape[1] != mat2.shape[0]
        or input.shape != (mat1.shape[0], mat2.shape[1])
    ):
        raise ShapeError(
            "sampled_addmm", f"input is {tuple(input.shape)}, mat1 {tuple(mat1.shape)} and mat2 {tuple(mat2.shape)}"
        )
    input = input if input.layout is sparse_csr else input.coalesce()
    a, b = F.unsqueeze(mat1, 1), F.unsqueeze(F.transpose(mat2, 0, 1), 1)
    values = F.reshape(input.structure().dots(a, b), (-1,)) * alpha
    return input.with_values(values if beta == 0 else input.values() * beta + values)


def sum(input, dim=None, dtype=None):
    """Sums over axes, all by default; sparse where a sparse axis is left."""
    input = input if dtype is None else input.to(dtype)
    return F.sum(input, dim)


def softmax(input, dim: int, *, dtype=None):
    """Softmax over the entries of a sparse tensor along an axis; places without an entry count as minus infinity.

    >>> td.sparse.softmax(td.sparse_coo_tensor([[0, 0], [0, 2]], [1.0, 1.0], (1, 3)), 1).values()
    tensor([0.5000, 0.5000])
    """
    input = (input if dtype is None else input.to(dtype)).to_sparse_coo().coalesce()
    entries, back = _by_rest(input, dim)
    return input.with_values(F.reshape(back(entries.softmax(back.sorted())), input.values().shape))


def log_softmax(input, dim: int, *, dtype=None):
    """Logarithm of `softmax`."""
    input = (input if dtype is None else input.to(dtype)).to_sparse_coo().coalesce()
    entries, back = _by_rest(input, dim)
    scores = back.sorted()
    weights = entries.softmax(scores)
    shift = F.stop_gradient(scores - F.log(weights))
    total = entries.sum_rows(F.exp(scores - shift))
    return input.with_values(F.reshape(back(scores - shift - F.log(entries.of_rows(total))), input.values().shape))


class _Sorted:
    """Values of a tensor by the group that they are in, and back."""

    def __init__(self, values, order):
        self.values = F.reshape(values, (values.shape[0], -1))
        self.order = order
        self.inverse = F.argsort(order)

    def sorted(self):
        return F.index_select(self.values, 0, self.order)

    def __call__(self, made):
        return F.index_select(made, 0, self.inverse)


def _by_rest(input: SparseTensor, dim: int):
    """Entries that agree in all sparse axes but one, as rows of a structure, listed by row."""
    dim, k = normalize_axis("softmax", dim, input.ndim), input.sparse_dim()
    if dim >= k:
        raise UnsupportedError(
            "sparse.softmax", f"axis {dim} is dense", fix="x.with_values(td.softmax(x.values(), ...))"
        )
    others = [a for a in range(k) if a != dim]
    indices = input.indices()
    if others:
        flat = _flatten(F.stack([indices[a] for a in others], 0), [input.shape[a] for a in others])
        _, group = F.unique(flat, return_inverse=True)
    else:
        group = F.full((input._nnz(),), 0, dtype=indices.dtype, device=indices.device)
    count = int(F.amax(group)) + 1 if input._nnz() else 1
    order = F.argsort(group, stable=True)
    place = F.arange(input._nnz(), device=indices.device)
    return structure(group[order], place, count, input._nnz()), _Sorted(input.values(), order)


def spdiags(diagonals, offsets, shape, layout=None):
    """A sparse matrix with these diagonals: row i of `diagonals` is the one that offsets[i] names, read by column.

    diagonals: (k, n), offsets: (k)

    >>> td.sparse.spdiags(td.tensor([[1.0, 2.0]]), td.tensor([0]), (2, 2)).to_dense()
    tensor([[1., 0.],
            [0., 2.]])
    """
    diagonals = diagonals if diagonals.ndim == 2 else F.unsqueeze(diagonals, 0)
    offsets = F.reshape(offsets, (-1,))
    if offsets.shape[0] != diagonals.shape[0]:
        raise ShapeError("spdiags", f"there are {diagonals.shape[0]} diagonals and {offsets.shape[0]} offsets")
    column = F.broadcast_to(F.unsqueeze(F.arange(diagonals.shape[1]), 0), diagonals.shape)
    row = column - F.unsqueeze(offsets, 1)
    inside = (row >= 0) & (row < shape[0]) & (column < shape[1])
    made = sparse_coo_tensor(F.stack([row[inside], column[inside]], 0), diagonals[inside], shape).coalesce()
    return made if layout is None else made.to_sparse(layout=layout)
