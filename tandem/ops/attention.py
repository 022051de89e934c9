"""Scaled dot-product attention in memory linear in the lengths, forward and backward.

Note [Attention]
The library routines keep only the logarithm of each row's sum of exponentials; backward computes scores again block by block.
Gradients of the backward routine itself, and of masks, are those of the same formula written with matrix products: exact, of any
order, and quadratic in memory, which only second derivatives and learned masks pay for.
"""

from __future__ import annotations

import math

import tandem.ops as F
from tandem import dtypes
from tandem.errors import DTypeError, ShapeError, ValueRangeError
from tandem.graph.ir import Graph, Type, Value, current_builder
from tandem.graph.symbolic import hint, product
from tandem.ops import rules
from tandem.ops.define import LibraryOp, op, register
from tandem.ops.dropout import dropout_limit
from tandem.ops.prepare import (
    broadcast_shapes,
    cast,
    constant,
    full_expand,
    require_float,
    show,
    show_shape,
    with_weights,
)
from tandem.ops.region import region_graph


def _sum_dtype(dtype: dtypes.DType) -> dtypes.DType:
    return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32


def _like(buffer, type: Type):
    """Strides with the order of axes that an input has, such as (B, T, H, D) seen as (B, H, T, D)."""
    order = buffer.order
    if order is None:  # a view with gaps, such as the queries in one matrix with keys and values
        steps = [hint(s) for s in buffer.strides]
        if min(steps, default=0) <= 0:
            return None
        order = sorted(range(len(steps)), key=lambda axis: -steps[axis])
    if sorted(order) != list(range(len(type.shape))):
        return None
    strides, step = [0] * len(type.shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step = step * type.shape[axis]
    return tuple(strides)


class _Attention(LibraryOp):
    low_precision = True
    causal: bool
    masked: bool
    scale: float

    def rule(self, *types: Type):
        mask = len(types) - (6 if "backward" in self.name else 3)
        rules.allowed(self, mask == int(self.masked), f"masked is {self.masked}, and there are {mask} masks")
        sums = types[5].dtype if "backward" in self.name else None
        rules.allowed(self, sums in (None, _sum_dtype(types[1].dtype)), f"sums of {types[1].dtype} are {sums}")

    def attributes(self, *types):
        return (int(self.causal), int(self.masked)), (self.scale,)

    def _scores(self, q: Value, k: Value, mask) -> Value:
        return self._masked(F.matmul(q, F.matrix_transpose(k)) * self.scale, mask)

    def _masked(self, scores: Value, mask) -> Value:
        if mask:
            allowed = mask[0]
            if allowed.dtype.kind == "bool":
                scores = F.where(allowed, scores, constant(float("-inf"), scores.dtype))
            else:
                scores = scores + cast(allowed, scores.dtype)
        if self.causal:
            rows, columns = (F.Iota(scores.shape, scores.ndim - a, dtypes.int64)() for a in (2, 1))
            scores = F.where(F.LessEqual()(columns, rows), scores, constant(float("-inf"), scores.dtype))
        return scores

    def _probabilities(self, q, k, mask) -> Value:
        """softmax of the scores; zeros where a row sees no key."""
        scores = self._scores(q, k, mask)
        total = F.LogSumExp((scores.ndim - 1,))(scores)
        seen = F.not_equal(total, constant(float("-inf"), total.dtype))
        shifted = scores - full_expand(F.where(seen, total, constant(0, total.dtype)), scores.shape)
        return F.Exp()(shifted)


@register
class Attention(_Attention):
    """q (B, H, T, D), k (B, H, S, D), v (B, H, S, E)[, mask (B, H, T, S)] -> out (B, H, T, E), log of row sums (B, H, T)"""

    name = "attention"
    batching = "first"
    routine = "attention"
    sparse_grads = True
    takes = "F[b,h,t,d] F[b,h,s,d] F[b,h,s,e] ?[b,h,t,s]?"

    def infer(self, q: Type, k: Type, v: Type, *mask: Type):
        return q.with_shape((*q.shape[:3], v.shape[3])), Type(_sum_dtype(q.dtype), q.shape[:3])

    def operations(self, inputs, outputs) -> int:
        return 4 * math.prod(outputs[0]) * inputs[1][-2]

    def output_strides(self, types, buffers):
        out, sums = self.infer(*types)
        strides = _like(buffers[0], out)
        return None if strides is None else (strides, _row_major(sums.shape))

    def grad(self, g, q, k, v, *mask, out):
        g = g[
            0
        ]  # none ever reaches the sums: only AttentionBackward reads them, which takes them as functions of q and k
        if g is None:
            return (None,) * (3 + len(mask))
        results = AttentionBackward(self.causal, self.masked, self.scale)(g, q, k, v, *out, *mask)
        if not mask or not mask[0].dtype.is_inexact:
            return (*results, *(None for _ in mask))
        p = self._probabilities(q, k, mask)
        inner = F.matmul(g, F.matrix_transpose(v))
        return (*results, cast(p * (inner - F.sum(p * inner, -1, keepdims=True)), mask[0].dtype))


@register
class AttentionBackward(_Attention):
    """g, q, k, v, out, log of row sums[, mask] -> gradients of q, k, v"""

    low_precision = False  # its inputs are as Attention left them
    name = "attention_backward"
    batching = "first"
    routine = "attention_backward"
    sparse_grads = True
    takes = "F[b,h,t,e] F[b,h,t,d] F[b,h,s,d] F[b,h,s,e] F[b,h,t,e] ?[b,h,t] ?[b,h,t,s]?"

    def infer(self, g: Type, q: Type, k: Type, v: Type, out: Type, sums: Type, *mask: Type):
        return Type(q.dtype, q.shape), Type(k.dtype, k.shape), Type(v.dtype, v.shape)

    def output_strides(self, types, buffers):
        made = [_like(buffers[i], types[i]) or _row_major(types[i].shape) for i in (1, 2, 3)]
        return tuple(made)

    def grad(self, g, incoming, q, k, v, out, sums, *mask, vjp):
        def formula(incoming, q, k, v, *mask):
            p = self._probabilities(q, k, mask)
            inner = F.matmul(incoming, F.matrix_transpose(v))
            scores = p * (inner - F.sum(p * inner, -1, keepdims=True)) * self.scale
            return (
                F.matmul(scores, k),
                F.matmul(F.matrix_transpose(scores), q),
                F.matmul(F.matrix_transpose(p), incoming),
            )

        # out and sums are functions of the others, and the formula goes through those, so they take no gradient themselves.
        g_incoming, gq, gk, gv, *g_mask = vjp(formula, [incoming, q, k, v, *mask], list(g))
        return g_incoming, gq, gk, gv, None, None, *g_mask


@register
class AttentionBackwardPacked(_Attention):
    """AttentionBackward of queries, keys and values of one shape -> their gradients in one matrix, (B, T, 3, H, D), as the layer
    that made all three in one product wants them. Lowering makes these; they have no gradient."""

    name = "attention_backward_packed"
    routine = "attention_backward_packed"
    takes = "F[b,h,t,d] F[b,h,t,d] F[b,h,t,d] F[b,h,t,d] F[b,h,t,d] ?[b,h,t] ?[b,h,t,t]?"

    def infer(self, g: Type, q: Type, *others: Type):
        b, h, t, d = q.shape
        return q.with_shape((b, t, 3, h, d))


def _row_major(shape) -> tuple:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step = step * n
    return tuple(reversed(strides))


# -- the function


def _as_heads(x: Value, lead: tuple) -> Value:
    """(*lead, T, D) broadcast, as (B, H, T, D)."""
    x = full_expand(x, (*lead, *x.shape[-2:])) if x.shape[:-2] != lead else x
    if len(lead) == 2:
        return x
    return F.Reshape((product(lead[:-1]), lead[-1] if lead else 1, *x.shape[-2:]))(x)


def _shared_heads(name: str, query: Value, key: Value, value: Value) -> bool:
    """Whether heads of queries share those of keys in groups."""
    if min(query.ndim, key.ndim, value.ndim) < 3:
        raise ShapeError(name, "enable_gqa needs an axis of heads: (*b, H, T, D)")
    heads = query.shape[-3]
    for x in (key, value):
        if x.shape[-3] != heads and heads % x.shape[-3] != 0:
            raise ShapeError(name, f"{show(heads)} query heads cannot share {show(x.shape[-3])} key heads evenly")
    if key.shape[-3] != value.shape[-3]:
        raise ShapeError(name, f"there are {show(key.shape[-3])} key heads and {show(value.shape[-3])} value heads")
    return bool(key.shape[-3] != heads)


def _drop_graph(q: Value, columns, p: float) -> Graph:
    """(scores, slopes, seed, offset) -> factors of the probabilities: the same as `dropout` has for the whole matrix."""
    shape, dtype = (*q.shape[:3], columns), _sum_dtype(q.dtype)

    def factors(scores, slopes, seed, offset):
        if p == 1.0:
            return [F.zeros_like(scores)]
        kept = F.LessEqual()(constant(dropout_limit(p), dtypes.uint32), F.RandomBits(shape, 0)(seed, offset))
        return [F.Where()(kept, *(full_expand(constant(x, dtype), shape) for x in (1.0 / (1.0 - p), 0.0)))]

    types = [Type(dtype, shape)] * 2 + [Type(dtypes.int64, ())] * 2
    return region_graph(current_builder().graph.symbols, "drop", types, factors)


@op(method=False)
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p=0.0, is_causal=False, *,
    scale=None, enable_gqa=False, generator: Generator | None = None,
):  # fmt: skip
    """softmax(query @ key.mT * scale + mask) @ value, without ever holding the matrix of scores.

    query: (*b, T, D), key: (*b, S, D), value: (*b, S, E) -> (*b, T, E). attn_mask broadcasts to (*b, T, S): True or a number to add
    for what may be seen. is_causal: query i sees keys 0 to i. scale: 1 / sqrt(D) by default. enable_gqa: fewer key heads than
    query heads. A query that sees no key gives zeros.

    >>> td.scaled_dot_product_attention(td.ones(1, 2, 4), td.ones(1, 2, 4), td.arange(2.0).reshape(1, 2, 1), is_causal=True)
    tensor([[[0.0000],
             [0.5000]]])
    """
    name = "scaled_dot_product_attention"
    query, key, value = with_weights(name, query, key, value)
    require_float(name, query, "query")
    if (
        min(query.ndim, key.ndim, value.ndim) < 2
        or query.shape[-1] != key.shape[-1]
        or key.shape[-2] != value.shape[-2]
    ):
        raise ShapeError(
            name,
            f"query is {show_shape(query.shape)}, key {show_shape(key.shape)} and value {show_shape(value.shape)}; they must be "
            "(*b, T, D), (*b, S, D) and (*b, S, E)",
        )
    if not 0.0 <= dropout_p <= 1.0:
        raise ValueRangeError(name, f"dropout_p is {dropout_p}; a probability lies between 0 and 1")
    if is_causal and attn_mask is not None:
        raise ValueRangeError(
            name, "is_causal and attn_mask exclude each other", fix="put the causal limit into the mask"
        )
    scale = 1.0 / math.sqrt(float(query.shape[-1])) if scale is None else float(scale)
    shared = enable_gqa and _shared_heads(name, query, key, value)
    if shared:
        batch = broadcast_shapes(name, query.shape[:-3], key.shape[:-3], value.shape[:-3])
        lead, key_lead = (*batch, query.shape[-3]), (*batch, key.shape[-3])
    else:
        lead = key_lead = broadcast_shapes(name, query.shape[:-2], key.shape[:-2], value.shape[:-2])
    rows, columns = query.shape[-2], key.shape[-2]
    mask = ()
    if attn_mask is not None:
        if attn_mask.dtype.kind != "bool" and not attn_mask.dtype.is_floating:
            raise DTypeError(name, f"attn_mask is {attn_mask.dtype}; it must be bool or floating")
        shape = broadcast_shapes(name, (*lead, rows, columns), attn_mask.shape)
        if len(shape) != len(lead) + 2 or any(a != b for a, b in zip(shape, (*lead, rows, columns), strict=True)):
            raise ShapeError(
                name,
                f"attn_mask is {show_shape(attn_mask.shape)} and must broadcast to {show_shape((*lead, rows, columns))}",
            )
        # one to be added stays as small as it is, and so does its gradient
        adds = attn_mask.dtype.kind != "bool" and len(lead) == 2
        small = (*(1 for _ in range(4 - attn_mask.ndim)), *attn_mask.shape)
        mask = (F.Reshape(small)(attn_mask) if adds else _as_heads(F.expand(attn_mask, shape), lead),)
    q, k, v = _as_heads(query, lead), _as_heads(key, key_lead), _as_heads(value, key_lead)
    adds = bool(mask) and mask[0].dtype.kind != "bool"
    if dropout_p or shared or adds:
        drop, consts = None, ()
        if dropout_p:
            drop, consts = (
                _drop_graph(q, columns, dropout_p),
                (generator.seed, generator.take(product((*q.shape[:3], columns)))),
            )
        flexible = F.FlexAttention(None, None, drop, None, bool(is_causal), bool(mask), False, scale, ())
        out = flexible(q, k, v, *mask, *consts)[0]
    else:
        out = Attention(bool(is_causal), bool(mask), scale)(q, k, v, *mask)[0]
    return out if len(lead) == 2 else F.Reshape((*lead, rows, value.shape[-1]))(out)
