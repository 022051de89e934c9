"""common_subexpressions: what is computed twice from the same values is computed once.

Building a graph does this already for equal operators on equal inputs; what remains are operators that became equal later (when
sizes turned out to be one, or a rule rewrote their inputs), and operands in another order where the order does not matter. Sums of
the same elements in another shape are one as well: the two biases of a recurrent layer have one gradient, summed over (length,
batch) for the one and over (length * batch) for the other. What waits for different nodes, or must run on different devices, is
never one.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.codegen.buffer import factor_groups, is_one, same_shape
from tandem.graph.ir import Graph, Node, Value
from tandem.ops.movement import Reshape
from tandem.ops.reduce import Reduce
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild


@graph_pass
def common_subexpressions(graph: Graph) -> Graph:
    if not _has_any(graph):
        return graph
    swapped: dict[tuple, Value] = {}
    reduced: dict[tuple, Value] = {}

    def visit(node, inputs):
        if isinstance(node.op, Reduce):
            key = _elements(node, inputs[0])
            if key is not None:
                value = node.outputs[0] if inputs == node.inputs else node.op(*inputs)
                first = reduced.setdefault(key, value)
                if first is node.outputs[0]:
                    return None
                shape = node.outputs[0].shape
                return first if same_shape(first.shape, shape) else F.Reshape(shape)(first)
            return None
        if node.op.commutative and inputs[0] is not inputs[1]:
            found = swapped.get((node.op, node.device, inputs[1], inputs[0]))
            if found is not None:
                return found
            value = node.outputs[0] if inputs == node.inputs else node.op(*inputs)
            first = swapped.setdefault((node.op, node.device, *inputs), value)
            return None if first is node.outputs[0] else first
        return None

    return rebuild(graph, visit)


def _has_any(graph: Graph) -> bool:
    """Whether something is computed twice as it stands; looking takes a part of the time of making another graph."""
    seen = set()
    for node in graph.nodes:
        op = node.op
        if op.effect:
            continue
        place = (node.control, node.device)
        key = (op, place, *node.inputs)
        if isinstance(op, Reduce) and not node.control:
            key = _elements(node, node.inputs[0]) or key
        if key in seen or (op.commutative and (op, place, *reversed(node.inputs)) in seen):
            return True
        seen.add(key)
    return False


def _elements(node: Node, x: Value) -> tuple | None:
    """What a reduction combines, whatever shape it is shown in: (operator, device, what has memory, its axes). None where a shape
    mixes elements that are combined with others."""
    op = node.op
    if op.kind in ("argmax", "argmin"):  # these give positions, which a shape decides
        return None
    axes = set(op.axes)
    while isinstance(x.op, Reshape) and not x.node.control and x.node.device is node.device:
        source = x.node.inputs[0]
        inside = set()
        for before, after in factor_groups(source.shape, x.shape):
            if axes.issuperset(after):
                inside.update(before)
            elif not axes.isdisjoint(after):
                return None
        x, axes = source, inside
    return op.kind, op.dtype, node.device, x, tuple(i for i in sorted(axes) if not is_one(x.shape[i]))
