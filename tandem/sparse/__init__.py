"""Sparse tensors: td.sparse_coo_tensor, td.sparse_csr_tensor, x.to_sparse(); functions of them with PyTorch's names."""

import tandem.sparse.forms
from tandem.sparse.functions import addmm, log_softmax, mm, sampled_addmm, softmax, spdiags, sum
from tandem.sparse.structure import Structure, structure
from tandem.sparse.tensor import (
    SparseTensor,
    sparse_coo,
    sparse_coo_tensor,
    sparse_csr,
    sparse_csr_tensor,
    strided,
)

__all__ = [
    "SparseTensor", "Structure", "addmm", "log_softmax", "mm", "sampled_addmm", "softmax", "sparse_coo", "sparse_coo_tensor",
    "sparse_csr", "sparse_csr_tensor", "spdiags", "strided", "structure", "sum",
]  # fmt: skip
