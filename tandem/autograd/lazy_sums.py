"""What the engine adds weight gradients up with; see Note [Lazy weight gradients] in src/autograd/lazy_sum.h."""

from __future__ import annotations

import tandem.ops as F


def add_matmul(total, left, right):
    """total, or nothing, plus left.T @ right."""
    left = F.permute(left, (1, 0))
    return F.matmul(left, right) if total is None else F.addmm(total, left, right)


def add_at(total, index, updates):
    """Adds each of the updates to a row of total, in place."""
    F.index_add_(total, 0, index, updates)
