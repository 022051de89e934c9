"""Batching rules of library routines that take matrices, positions or the edges of a graph (see batching.py)."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.graph.ir import Value
from tandem.transforms.batching import Batcher, as_list, rule, with_fields


@rule("pinv")
def _pinv(b, node, values, flags):
    """Tolerances are one for each matrix."""
    matrices, *tolerances = b.fulls(values, flags)
    lead = matrices.shape[:-2]
    return node.op(matrices, *(t if t.ndim == len(lead) else _one_each(b, t, lead) for t in tolerances))


def _one_each(b: Batcher, t: Value, lead: tuple) -> Value:
    return F.Expand(lead)(F.Reshape((b.size, *(1 for _ in lead[1:])))(t))


@rule("pdist")
def _pdist(b, node, values, flags):
    inner = b._inner(node, lambda x: as_list(node.op.composed(x)))
    return [b.full(*r) for r in b.graph(inner, values, flags)]


@rule("bincount")
def _bincount(b, node, values, flags):
    """Every example counts in a range of its own. What is out of range stays so, and fails."""
    op, x = node.op, values[0]
    zero = F.Constant(0, dtypes.int64)()
    at = F.subtract(F.Cast(dtypes.int64)(x) if x.dtype is not dtypes.int64 else x, op.low)
    inside = F.logical_and(F.greater_equal(at, zero), F.less(at, op.size))
    first = F.Iota(at.shape, 0, dtypes.int64)() * F.Size(op.size, dtypes.int64)()
    made = with_fields(op, low=0, size=b.size * op.size)(F.where(inside, at + first, -1))
    return F.Reshape((b.size, op.size))(made)


# -- edges of one graph for all examples: the batch's axis joins that of the heads

_FEATURES = {"sddmm": 2, "segment_softmax": 1, "segment_softmax_backward": 2}


@rule("spmm", "sddmm", "segment_softmax", "segment_softmax_backward")
def _heads(b, node, values, flags):
    count = _FEATURES.get(node.op.name) or 1 + node.op.weighted
    if any(flags[count:]):
        return None  # graphs of their own: one after the other

    def joined(v: Value) -> Value:  # (B, k, h, ...) as (k, B * h, ...)
        v = F.Permute((1, 0, *range(2, v.ndim)))(v)
        return F.Reshape((v.shape[0], b.size * v.shape[2], *v.shape[3:]))(v)

    features = [joined(v) for v in b.fulls(values[:count], flags[:count])]
    like = node.outputs[0]
    made = F.Reshape((like.shape[0], b.size, *like.shape[1:]))(node.op(*features, *values[count:]))
    return F.Permute((1, 0, *range(2, made.ndim)))(made)


@rule("edge_sum")
def _edge_sum(b, node, values, flags):
    x, *edges = values
    if any(flags[1:]):
        return None
    made = node.op(F.Permute((1, 0, *range(2, x.ndim)))(x), *edges)
    return F.Permute((1, 0, *range(2, made.ndim)))(made)


# -- random numbers of distributions


@rule("draw")
def _draw(b, node, values, flags):
    if any(flags[:2]) or b.randomness == "same":
        return None  # one example after the other, each from its own place, or all from the same
    seed, offset, *parameters = values
    return node.op(seed, b.place(offset), *b.fulls(parameters, flags[2:]))
