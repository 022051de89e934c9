"""share_heads: attention reads heads of keys and values that were repeated for its queries where they lie.

    attention(q, repeat(k), repeat(v))                 ->  flex_attention(q, k, v)
    sums over repeats of attention_backward's gradients ->  flex_attention_backward, which adds them up

Grouped queries are written that way in plain code: `k.repeat_interleave(n, 1)`, or `expand` and `reshape`. Targets without such a
routine repeat the heads again (`composed` in ops/flex_attention.py).
"""

from __future__ import annotations

import tandem.ops as F
from tandem.codegen.buffer import is_one, same, same_shape
from tandem.graph.ir import Graph, Node, Value
from tandem.ops.arithmetic import Copy
from tandem.ops.attention import Attention, AttentionBackward
from tandem.ops.flex_attention import FlexAttention, FlexAttentionBackward
from tandem.ops.movement import Expand, Reshape
from tandem.ops.reduce import Reduce
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild, use_counts


@graph_pass
def share_heads(graph: Graph) -> Graph:
    found = [n for n in graph.nodes if type(n.op) in (Attention, AttentionBackward) and not n.control and _shared(n)]
    if not found:
        return graph
    sums = _sums(graph, [n for n in found if type(n.op) is AttentionBackward])
    found = {n for n in found if type(n.op) is Attention or n in sums}
    summed = {total: (n, k) for n in found for k, total in enumerate(sums.get(n, ()))}
    gradients: dict[Node, tuple] = {}

    def visit(node: Node, inputs):
        if node in summed:  # the sum over repeats is what was computed
            source, k = summed[node]
            return F.Reshape(node.outputs[0].shape)(gradients[source][k])
        if node not in found:
            return None
        first = 0 if type(node.op) is Attention else 1
        shared = [_repeated(x) for x in inputs[first + 1 : first + 3]]
        if None in shared:
            return None
        op = node.op
        kind = FlexAttention if first == 0 else FlexAttentionBackward
        settings = (None, None, None, None, op.causal, op.masked, False, op.scale, ())
        made = kind(*settings)(*inputs[: first + 1], *map(_heads, shared), *inputs[first + 3 :])
        if first == 0:
            return made
        gradients[node] = made[1:]
        return made[0], inputs[2], inputs[3]  # nobody looks at the gradients of repeated heads

    return rebuild(graph, visit)


def _shared(node: Node) -> bool:
    first = 1 if type(node.op) is Attention else 2
    return all(_repeated(x) is not None for x in node.inputs[first : first + 2])


def _repeated(x: Value) -> Value | None:
    """What x (B, H, S, D) repeats each head of, in order: (B, G, 1, S, D), or None."""
    x = _uncopied(x)
    if not isinstance(x.op, Reshape):
        return None
    spread = _uncopied(x.node.inputs[0])
    if not isinstance(spread.op, Expand) or len(spread.shape) != 5 or len(x.shape) != 4:
        return None
    one = spread.node.inputs[0]
    batch, heads, repeats, *rest = spread.shape
    fits = len(one.shape) == 5 and is_one(one.shape[2]) and not is_one(repeats)
    fits = fits and same_shape(one.shape[:2], (batch, heads)) and same_shape(one.shape[3:], rest)
    if not fits or not same(x.shape[1], heads * repeats) or not same_shape((x.shape[0], *x.shape[2:]), (batch, *rest)):
        return None
    return one


def _heads(one: Value) -> Value:
    """(B, G, 1, S, D) as (B, G, S, D)"""
    shape = (*one.shape[:2], *one.shape[3:])
    before = one.node.inputs[0] if isinstance(one.op, Reshape) else one
    return before if same_shape(before.shape, shape) else F.Reshape(shape)(one)


def _uncopied(x: Value) -> Value:
    return x.node.inputs[0] if isinstance(x.op, Copy) else x


def _sums(graph: Graph, nodes: list[Node]) -> dict[Node, list[Node]]:
    """For each of these, the sums over repeats that its gradients of keys and values go into, where nothing else reads them."""
    uses, counts = {}, use_counts(graph)
    for node in graph.nodes:
        for v in node.inputs:
            uses[v] = node
    found = {}
    for node in nodes:
        totals = [_sum_of(v, node.inputs[2 + k], uses, counts) for k, v in enumerate(node.outputs[1:])]
        if None not in totals:
            found[node] = totals
    return found


def _sum_of(gradient: Value, repeated: Value, uses: dict, counts: dict) -> Node | None:
    spread = _uncopied(_uncopied(repeated).node.inputs[0])
    apart = uses.get(gradient)
    if apart is None or counts[gradient] != 1 or not isinstance(apart.op, Reshape):
        return None
    if not same_shape(apart.outputs[0].shape, spread.shape):
        return None
    total = uses.get(apart.outputs[0])
    if total is None or counts[apart.outputs[0]] != 1 or not isinstance(total.op, Reduce):
        return None
    op = total.op
    return total if op.kind == "sum" and tuple(op.axes) == (2,) and op.dtype is None and not total.control else None
