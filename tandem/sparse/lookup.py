"""Rows of tables whose gradient is sparse: only what was looked up is in it."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.autograd.function import Function
from tandem.errors import UnsupportedError
from tandem.graph.ir import Value
from tandem.sparse.tensor import make_coo


def rows_at(index, weight, padding_idx=None):
    """F.embedding, also of tables with a number in each row."""
    return F.embedding(index, weight, padding_idx) if weight.ndim == 2 else F.take(weight, index, 0)


class _Rows(Function):
    @staticmethod
    def forward(ctx, weight, index, padding_idx, by_frequency):
        ctx.save_for_backward(index)
        ctx.shape, ctx.padding_idx, ctx.by_frequency = weight.shape, padding_idx, by_frequency
        return rows_at(index, weight, padding_idx)

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        rows = F.reshape(F.astype(index, dtypes.int64, copy=False), (-1,))
        values = F.reshape(g, (-1, *ctx.shape[1:]))
        if ctx.by_frequency:
            counts = F.bincount(rows, minlength=ctx.shape[0])
            values = values / _over(F.astype(counts[rows], values.dtype), values)
        if ctx.padding_idx is not None:
            kept = F.not_equal(rows, ctx.padding_idx)
            if _runtime.capturing():  # where sizes must not depend on values
                values = F.where(_over(kept, values), values, 0)
            else:
                rows, values = rows[kept], values[kept]
        return make_coo(F.unsqueeze(rows, 0), values, ctx.shape, False), None, None, None


def _over(x, values):
    """x (m) against values (m, *r)"""
    return F.reshape(x, (x.shape[0], *(1,) * (values.ndim - 1)))


def sparse_embedding(index, weight, padding_idx=None, by_frequency: bool = False):
    """F.embedding(index, weight) whose gradient is sparse: of the rows that index names, one entry for each."""
    if isinstance(weight, Value) or isinstance(index, Value):
        return rows_at(index, weight, padding_idx)  # in deferred graphs gradients are dense
    if not weight.is_leaf and weight.requires_grad and _runtime.in_body():
        raise UnsupportedError("embedding", "sparse=True has no meaning in the body of a loop", fix="leave it out")
    return _Rows.apply(weight, index, padding_idx, by_frequency)


class _Elements(Function):
    @staticmethod
    def forward(ctx, x, axis, index):
        ctx.save_for_backward(index)
        ctx.shape, ctx.axis = x.shape, axis % max(x.ndim, 1)
        return F.gather(x, axis, index)

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        places = []
        for k, n in enumerate(index.shape):
            own = F.reshape(F.arange(n, device=index.device), tuple(n if a == k else 1 for a in range(index.ndim)))
            places.append(F.reshape(index if k == ctx.axis else F.broadcast_to(own, index.shape), (-1,)))
        return make_coo(F.stack(places, 0), F.reshape(g, (-1,)), ctx.shape, False), None, None


def sparse_gather(x, axis, index):
    """F.gather(x, axis, index) whose gradient is sparse."""
    return _Elements.apply(x, axis, index)
