"""Methods of dense tensors that lead to sparse ones, which are loaded when first needed (tandem/sparse)."""

from __future__ import annotations

from tandem import hooks
from tandem.layouts import sparse_csr, strided
from tandem.ops.define import method


@method
def to_sparse(x, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
    """x without its zeros. sparse_dim: how many leading axes are sparse (all), layout: td.sparse_coo or td.sparse_csr.

    >>> td.tensor([0.0, 5.0]).to_sparse().indices()
    tensor([[1]])
    """
    return hooks.from_dense(x, sparse_dim, layout)


@method
def to_sparse_coo(x):
    """x as coordinates and values, without its zeros."""
    return to_sparse(x)


@method
def to_sparse_csr(x, dense_dim=None):
    """x as compressed rows, without its zeros; of matrices."""
    return hooks.from_dense(x, None, sparse_csr)


@method
def sparse_mask(x, mask):
    """x at the places that a sparse tensor has."""
    return hooks.masked_by(x, mask)


@method
def to_dense(x, dtype=None, *, masked_grad=None):
    """This tensor, which is dense."""
    return x if dtype is None else x.to(dtype)


def attach(tensor):
    """What must be a property."""
    tensor.layout = property(
        lambda x: strided, doc="How the tensor lies in memory: td.strided, td.sparse_coo, td.sparse_csr."
    )
    tensor.is_sparse_csr = tensor._in_parts = False
