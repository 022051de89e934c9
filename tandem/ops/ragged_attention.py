"""Attention within sequences of different lengths that lie one after the other: no padding, nothing computed for it."""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError
from tandem.graph.ir import Type
from tandem.ops import rules
from tandem.ops.attention import Attention
from tandem.ops.define import LibraryOp, op, register
from tandem.ops.edges import owners
from tandem.ops.movement import Permute
from tandem.ops.prepare import require_float, show_shape, with_weights


def _sum_dtype(dtype: dtypes.DType) -> dtypes.DType:
    return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32


class _Ragged(LibraryOp):
    only_on = "cpu"
    may_fail = True
    low_precision = True
    causal: bool
    scale: float

    def attributes(self, *types):
        return (int(self.causal),), (self.scale,)

    def _probabilities(self, q, k, start_q, start_k):
        """(h, T, S): zeros between sequences."""
        row, column = owners(start_q, q.shape[0]), owners(start_k, k.shape[0])
        seen = F.equal(F.unsqueeze(row, 1), F.unsqueeze(column, 0))
        if self.causal:
            place = F.Iota((q.shape[0],), 0, dtypes.int64)() - F.Gather()(start_q, row)
            other = F.Iota((k.shape[0],), 0, dtypes.int64)() - F.Gather()(start_k, column)
            seen = F.logical_and(seen, F.less_equal(F.unsqueeze(other, 0), F.unsqueeze(place, 1)))
        heads = [F.unsqueeze(Permute((1, 0, 2))(x), 0) for x in (q, k)]
        mask = F.expand(F.reshape(seen, (1, 1, *seen.shape)), (1, q.shape[1], *seen.shape))
        return Attention(False, True, self.scale)._probabilities(*heads, (mask,))

    def _formula(self, q, k, v, start_q, start_k):
        p = self._probabilities(q, k, start_q, start_k)
        out = F.matmul(p, F.unsqueeze(Permute((1, 0, 2))(v), 0))
        return Permute((1, 0, 2))(F.squeeze(out, 0))


@register
class RaggedAttention(_Ragged):
    """q (T, H, D), k (S, H, D), v (S, H, E), start_q (B + 1), start_k (B + 1) -> out (T, H, E), log of row sums (H, T)"""

    name = "ragged_attention"
    routine = "ragged_attention"
    sparse_grads = True
    takes = "F[t,h,d] F[s,h,d] F[s,h,e] i64[b] i64[b]"

    def infer(self, q: Type, k: Type, v: Type, start_q: Type, start_k: Type):
        return q.with_shape((*q.shape[:2], v.shape[2])), Type(_sum_dtype(q.dtype), (q.shape[1], q.shape[0]))

    def composed(self, q, k, v, start_q, start_k):
        sums = F.full((q.shape[1], q.shape[0]), 0, dtype=_sum_dtype(q.dtype))  # which only the routine's backward reads
        return self._formula(q, k, v, start_q, start_k), sums

    def grad(self, g, q, k, v, start_q, start_k, *, out):
        if g[0] is None:
            return (None,) * 5
        made = RaggedAttentionBackward(self.causal, self.scale)(g[0], q, k, v, *out, start_q, start_k)
        return (*made, None, None)


@register
class RaggedAttentionBackward(_Ragged):
    """g, q, k, v, out, log of row sums, start_q, start_k -> gradients of q, k, v"""

    low_precision = False
    name = "ragged_attention_backward"
    routine = "ragged_attention_backward"
    sparse_grads = True
    takes = "F[t,h,e] F[t,h,d] F[s,h,d] F[s,h,e] F[t,h,e] ?[h,t] i64[b] i64[b]"

    def infer(self, g: Type, q: Type, k: Type, v: Type, out: Type, sums: Type, start_q: Type, start_k: Type):
        return q, k, v

    def rule(self, g: Type, q: Type, *others: Type):
        rules.allowed(self, others[3].dtype is _sum_dtype(q.dtype), f"sums of {q.dtype} are {others[3].dtype}")

    def composed(self, g, q, k, v, out, sums, start_q, start_k):
        p = self._probabilities(q, k, start_q, start_k)
        heads = [F.unsqueeze(Permute((1, 0, 2))(x), 0) for x in (g, q, k, v)]
        g, q, k, v = heads
        inner = F.matmul(g, F.matrix_transpose(v))
        scores = p * (inner - F.sum(p * inner, -1, keepdims=True)) * self.scale
        made = F.matmul(scores, k), F.matmul(F.matrix_transpose(scores), q), F.matmul(F.matrix_transpose(p), g)
        return tuple(Permute((1, 0, 2))(F.squeeze(x, 0)) for x in made)

    def grad(self, g, incoming, q, k, v, out, sums, start_q, start_k, *, vjp):
        def formula(incoming, q, k, v):
            return self.composed(incoming, q, k, v, None, None, start_q, start_k)

        return (*vjp(formula, [incoming, q, k, v], list(g)), None, None, None, None)


@op(hidden=True)
def ragged_attention(query: Tensor, key: Tensor, value: Tensor, start_q: Tensor, start_k: Tensor, is_causal, scale):
    """query: (T, H, D), key: (S, H, D), value: (S, H, E), start_q, start_k: (B + 1) -> (T, H, E)"""
    name = "scaled_dot_product_attention"
    query, key, value = with_weights(name, query, key, value)
    require_float(name, query, "query")
    if query.shape[2] != key.shape[2] or key.shape[0] != value.shape[0] or query.shape[1] != key.shape[1]:
        raise ShapeError(
            name,
            f"query is {show_shape(query.shape)}, key {show_shape(key.shape)} and value {show_shape(value.shape)}; they must be "
            "(T, H, D), (S, H, D) and (S, H, E)",
        )
    scale = 1.0 / math.sqrt(float(query.shape[2])) if scale is None else float(scale)
    return RaggedAttention(bool(is_causal), scale)(query, key, value, start_q, start_k)[0]
