"""Attention whose scores are changed and masked by functions, with dropout, learned masks and grouped queries: the primitives.

Note [Flexible attention]
What is done to the matrix of scores is said by graphs over the whole matrix, element by element:

    score   (scores, slopes, *consts) -> what is exponentiated
    hidden  the same with -inf for what may not be seen
    drop    (scores, slopes, *consts) -> factors of the probabilities
    slope   (scores, slopes, *consts) -> gradients by the scores, of gradients by what `score` makes of them

On the CPU each becomes a kernel that the routine calls for blocks of the matrix (codegen/block_kernels.py, Note [Block kernels] in
src/library/block_kernel.h), so the matrix never exists. `kinds` says which blocks of it nobody sees, and which need no `hidden`.
Elsewhere, for second derivatives, and for gradients of what score functions capture, the same formula is written with matrix
products: exact, and quadratic in memory.

Note [Shared heads as rows]
Where heads of queries share one of keys and causality does not tell rows apart, they may as well be rows of one head: (B, H, T, D)
is (B, G, H / G T, D) in the same memory. So a step of one token reads every key once, and none is repeated for each head.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import hooks
from tandem.graph.ir import Graph, Type, Value, current_builder
from tandem.ops import rules
from tandem.ops.attention import Attention, AttentionBackward, _like, _row_major, _sum_dtype
from tandem.ops.create import Constant, Iota, RandomBits, Size
from tandem.ops.define import Elementwise, Input, Movement, lowered, register
from tandem.ops.index import Gather
from tandem.ops.prepare import cast, constant, full_expand
from tandem.ops.region import Region, copy_nodes, region_graph

_POINTWISE = (Elementwise, Movement, Gather, Constant, Size, Iota, RandomBits, Input)


def is_pointwise(graph: Graph) -> bool:
    """Whether a kernel can compute its result for one element after the other."""
    return all(isinstance(node.op, _POINTWISE) for node in graph.nodes)


def inlined(graph: Graph, inputs) -> list[Value]:
    """What the graph gives for these inputs, in the graph being built."""
    made = dict(zip(graph.inputs, inputs, strict=True))
    copy_nodes(graph.nodes, made)
    return [made[v] for v in graph.outputs]


class _Flexible(Region):
    directs = False
    only_on = "cpu"
    leading = 3  # operands before the mask
    score: Graph | None
    hidden: Graph | None
    drop: Graph | None
    slope: Graph | None
    causal: bool
    masked: bool  # whether there is a mask, bool or to be added: (B or 1, H or 1, T or 1, S or 1)
    learned: bool  # whether backward gives a gradient of the mask
    scale: float
    blocks: tuple  # sizes of blocks of queries and keys that there are kinds of: (B or 1, H or 1, blocks, blocks); ()

    def kernels(self) -> list[Graph | None]:
        """In the order of ScoreKernels in src/library/attention_impl.h."""
        return [self.score, self.hidden, self.drop, self.slope]

    def graphs(self):
        return tuple(g for g in self.kernels() if g is not None)

    def with_graphs(self, *graphs):
        given = iter(graphs)
        made = [None if g is None else next(given) for g in self.kernels()]
        return type(self)(*made, self.causal, self.masked, self.learned, self.scale, self.blocks)

    def rule(self, *types: Type):
        operands = self.leading + self.masked + bool(self.blocks)
        rules.need(self, len(types) >= operands, f"it takes {operands} operands and more, and is given {len(types)}")
        q, k, v = types[self.leading - 5 : self.leading - 2] if self.leading == 6 else types[:3]
        fits = q.ndim == k.ndim == v.ndim == 4 and k.shape[1] == v.shape[1] and q.shape[1] % k.shape[1] == 0
        rules.need(self, fits, f"queries are {q!r}, keys {k!r} and values {v!r}; heads of queries share those of keys")
        for graph in self.graphs():
            given = len(types) - operands + 2
            rules.need(
                self, len(graph.inputs) == given, f"a graph takes {len(graph.inputs)} inputs, and is given {given}"
            )

    def attributes(self, *types):
        bits = sum(1 << bit for bit, graph in enumerate(self.kernels()) if graph is not None)
        rows, columns = self.blocks or (1, 1)
        return (int(self.causal), int(self.masked), int(bool(self.blocks)), rows, columns, bits), (self.scale,)

    def _parts(self, rest) -> tuple:
        """(mask or None, consts)"""
        mask = rest[0] if self.masked else None
        return mask, list(rest[self.masked + bool(self.blocks) :])

    def _plain(self) -> bool:
        return not self.graphs() and not self.learned

    def _heads(self, q, x):
        """x with each of its heads repeated for the queries that share it."""
        heads, own = q.shape[1], x.shape[1]
        if heads == own:
            return x
        spread = F.Expand((x.shape[0], own, heads // own, *x.shape[2:]))(
            F.Reshape((x.shape[0], own, 1, *x.shape[2:]))(x)
        )
        return F.Reshape((x.shape[0], heads, *x.shape[2:]))(spread)

    def _shares_rows(self, q, k, mask) -> bool:
        """Whether queries that share a head of keys may be rows of one head: Note [Shared heads as rows]."""
        single = type(q.shape[2]) is int and q.shape[2] == 1
        return q.shape[1] != k.shape[1] and not self.causal and (single or mask is None)

    def _exponents(self, q, k, rest) -> Value:
        mask, consts = self._parts(rest)
        # a mask in its own, small form; causality like any
        masks = () if mask is None else (full_expand(mask, (*q.shape[:3], k.shape[2])),)
        wide = _sum_dtype(q.dtype)
        plain = Attention(self.causal, self.masked, self.scale)
        if not masks and not self.graphs():
            return cast(plain._scores(q, k, ()), wide)
        scores = cast(Attention(False, False, self.scale)._scores(q, k, ()), wide)
        if self.score is not None or self.hidden is not None:
            (scores,) = inlined(self.hidden or self.score, [scores, scores, *consts])
        return plain._masked(scores, masks)

    def formula(self, q, k, v, *rest):
        """(out, log of row sums), of the whole matrix."""
        k, v = self._heads(q, k), self._heads(q, v)
        scores = self._exponents(q, k, rest)
        sums = F.LogSumExp((3,))(scores)
        total = F.Reshape((*scores.shape[:3], 1))(sums)
        seen = F.not_equal(total, constant(float("-inf"), total.dtype))
        p = F.Exp()(scores - full_expand(F.where(seen, total, constant(0, total.dtype)), scores.shape))
        if self.drop is not None:
            _, consts = self._parts(rest)
            p = p * inlined(self.drop, [scores, scores, *consts])[0]
        return F.matmul(cast(p, v.dtype), v), F.Reshape(scores.shape[:3])(sums)


@register
class FlexAttention(_Flexible):
    """q (B, H, T, D), k (B, G, S, D), v (B, G, S, E)[, mask][, kinds], *consts -> out (B, H, T, E), log of row sums (B, H, T)"""

    name = "flex_attention"
    routine = "attention"

    def __call__(self, q, k, v, *rest):
        return super().__call__(*lowered((q, k, v)), *rest)

    def infer(self, q: Type, k: Type, v: Type, *rest: Type):
        return q.with_shape((*q.shape[:3], v.shape[3])), Type(_sum_dtype(q.dtype), q.shape[:3])

    def output_strides(self, types, buffers):
        out, sums = self.infer(*types)
        strides = _like(buffers[0], out)
        return None if strides is None else (strides, _row_major(sums.shape))

    def composed(self, q, k, v, *rest):
        if not self._plain():
            return self.formula(q, k, v, *rest)
        mask, _ = self._parts(rest)
        masks = () if mask is None else (full_expand(mask, (*q.shape[:3], k.shape[2])),)
        attention = Attention(self.causal, self.masked, self.scale)
        if self._shares_rows(q, k, mask):
            out, sums = attention(_rows_of(q, k), k, v, *(_rows_of(m, k) for m in masks))
            return F.Reshape((*q.shape[:3], v.shape[3]))(out), F.Reshape(q.shape[:3])(sums)
        return attention(q, self._heads(q, k), self._heads(q, v), *masks)

    def grad(self, g, q, k, v, *rest, out, wanted):
        mask, consts = self._parts(rest)
        first = 3 + len(rest) - len(consts)
        captures = any(w and c.dtype.is_inexact for w, c in zip(wanted[first:], consts, strict=True))
        none = [None] * len(rest)
        if g[1] is not None:  # the sums are looked at as well
            return hooks.vjp(self.formula, [q, k, v, *rest], list(g))
        if g[0] is None:
            return [None] * (3 + len(rest))
        learned = mask is not None and mask.dtype.is_inexact and wanted[3]
        op = FlexAttentionBackward(
            self.score, self.hidden, self.drop, _slope(self.score), self.causal, self.masked, learned, self.scale, self.blocks
        )  # fmt: skip
        made = op(g[0], q, k, v, *out, *rest)
        if captures:
            none = hooks.vjp(self.formula, [q, k, v, *rest], [g[0], None])[3:]
        if learned:
            none[0] = made[3]
        return [*made[:3], *none]


@register
class FlexAttentionBackward(_Flexible):
    """g, q, k, v, out, log of row sums[, mask][, kinds], *consts -> gradients of q, k, v[, mask]"""

    name = "flex_attention_backward"
    routine = "attention_backward"
    leading = 6

    def infer(self, g: Type, q: Type, k: Type, v: Type, out: Type, sums: Type, *rest: Type):
        made = [Type(t.dtype, t.shape) for t in (q, k, v)]
        return (*made, Type(sums.dtype, rest[0].shape)) if self.learned else tuple(made)

    def output_strides(self, types, buffers):
        made = [_like(buffers[i], types[i]) or _row_major(types[i].shape) for i in (1, 2, 3)]
        return (*made, _row_major(types[6].shape)) if self.learned else tuple(made)

    def composed(self, g, q, k, v, out, sums, *rest):
        mask, _ = self._parts(rest)
        if self._plain():
            masks = () if mask is None else (full_expand(mask, (*q.shape[:3], k.shape[2])),)
            backward = AttentionBackward(self.causal, self.masked, self.scale)
            if self._shares_rows(q, k, mask):
                g, rows, out, *masks = (_rows_of(x, k) for x in (g, q, out, *masks))
                made = backward(g, rows, k, v, out, F.Reshape(out.shape[:3])(sums), *masks)
                return F.Reshape(q.shape)(made[0]), made[1], made[2]
            made = backward(g, q, *(self._heads(q, x) for x in (k, v)), out, sums, *masks)
            return made[0], _summed(made[1], k), _summed(made[2], v)
        return self._formula(g, q, k, v, *rest)

    def _formula(self, g, q, k, v, *rest):
        made = hooks.vjp(self.formula, [q, k, v, *rest], [g, None])
        mask = [cast(made[3], _sum_dtype(q.dtype))] if self.learned else []
        return (*made[:3], *mask)

    def grad(self, g, incoming, q, k, v, given_out, sums, *rest, out, wanted):
        # given_out and sums are functions of the others, which the formula goes through, so they take no gradient themselves.
        made = hooks.vjp(self._formula, [incoming, q, k, v, *rest], list(g))
        return [*made[:4], None, None, *made[4:]]


def _rows_of(x: Value, k: Value) -> Value:
    """(B, H, T, *), where H heads share those of k: (B, G, H / G T, *)."""
    b, h, t, last = x.shape
    return F.Reshape((b, k.shape[1], h // k.shape[1] * t, last))(x)


def _summed(g: Value, x: Value) -> Value:
    """The gradient of heads that were repeated."""
    heads, own = g.shape[1], x.shape[1]
    if heads == own:
        return g
    apart = F.Reshape((g.shape[0], own, heads // own, *g.shape[2:]))(g)
    return F.Reshape(x.shape)(F.sum(apart, 2))


def _slope(score: Graph | None) -> Graph | None:
    """None where the function changes no gradient: scores that are only added to."""
    if score is None:
        return None

    def fn(scores, slopes, *consts):
        (made,) = hooks.vjp(lambda x: inlined(score, [x, slopes, *consts])[0], [scores], [slopes])
        if made is None:
            made = F.zeros_like(scores)
        # what nobody sees passes nothing on, whatever the derivative is there
        return [
            made
            if made is slopes
            else F.where(F.equal(slopes, constant(0, slopes.dtype)), constant(0, slopes.dtype), made)
        ]

    types = [v.type for v in score.inputs]
    made = region_graph(current_builder().graph.symbols, "slope", types, fn)
    return None if made.outputs[0] is made.inputs[1] else made
