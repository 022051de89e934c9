"""What families of one's own are built with: PyTorch's torch.distributions.utils."""

from __future__ import annotations

import functools

import tandem as td
from tandem.distributions.base import parameters


def broadcast_all(*values) -> tuple:
    """Numbers and tensors as tensors of one floating type and one shape.

    >>> td.distributions.utils.broadcast_all(1.0, td.zeros(2))
    (tensor([1., 1.]), tensor([0., 0.]))
    """
    return tuple(parameters(*values))


def clamp_probs(probs):
    """Probabilities kept away from 0 and 1 by the smallest step that their type has at 1."""
    eps = td.finfo(probs.dtype).eps
    return td.clip(probs, eps, 1 - eps)


def logits_to_probs(logits, is_binary: bool = False):
    return td.sigmoid(logits) if is_binary else td.softmax(logits, -1)


def probs_to_logits(probs, is_binary: bool = False):
    probs = clamp_probs(probs)
    return td.log(probs) - td.log1p(-probs) if is_binary else td.log(probs)


class lazy_property(functools.cached_property):
    """A property that is computed when first asked for, with gradients recorded, and kept."""

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        with td.enable_grad():
            return super().__get__(instance, owner)


def tril_matrix_to_vec(mat, diag: int = 0):
    """The lower triangle of square matrices, row by row; diag says where it ends, 0 at the diagonal."""
    rows, columns = td.tril_indices(mat.shape[-1], mat.shape[-1], diag)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec, diag: int = 0):
    """Square matrices with vectors in their lower triangles, row by row, and zeros elsewhere."""
    size = 1
    while (entries := _entries(size, diag)) < vec.shape[-1]:
        size += 1
    if entries != vec.shape[-1]:
        raise ValueError(f"{vec.shape[-1]} numbers do not fill a triangle that ends at diagonal {diag}")
    rows, columns = td.tril_indices(size, size, diag)
    made = vec.new_zeros((*vec.shape[:-1], size, size))
    made[..., rows, columns] = vec
    return made


def _entries(size: int, diag: int) -> int:
    return sum(max(0, min(size, row + 1 + diag)) for row in range(size))


def _standard_normal(shape, dtype, device):
    return td.randn(*shape, dtype=dtype, device=device)


def _sum_rightmost(value, dim: int):
    """value summed over its last `dim` axes, as families with event axes do."""
    return value if dim == 0 else value.reshape((*value.shape[:-dim], -1)).sum(-1)
