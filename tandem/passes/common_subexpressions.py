"""common_subexpressions: what is computed twice from the same values is computed once.

Building a graph does this already for equal operators on equal inputs; what remains are operators that became equal later (when
sizes turned out to be one, or a rule rewrote their inputs), and operands in another order where the order does not matter. What
waits for different nodes, or must run on different devices, is never one.
"""

from __future__ import annotations

from tandem.graph.ir import Graph, Value
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild
from tandem.passes.rewrite import COMMUTATIVE


@graph_pass
def common_subexpressions(graph: Graph) -> Graph:
    if not _has_any(graph):
        return graph
    swapped: dict[tuple, Value] = {}

    def visit(node, inputs):
        if node.op.name in COMMUTATIVE and inputs[0] is not inputs[1]:
            found = swapped.get((node.op, node.device, inputs[1], inputs[0]))
            if found is not None:
                return found
            value = node.outputs[0] if inputs == node.inputs else node.op(*inputs)
            first = swapped.setdefault((node.op, node.device, *inputs), value)
            return None if first is node.outputs[0] else first
        return None

    return rebuild(graph, visit)


def _has_any(graph: Graph) -> bool:
    """Whether something is computed twice as it stands; looking takes a part of the time of making the graph anew."""
    seen = set()
    for node in graph.nodes:
        op = node.op
        if op.effect:
            continue
        place = (node.control, node.device)
        key = (op, place, *node.inputs)
        if key in seen or (op.name in COMMUTATIVE and (op, place, *reversed(node.inputs)) in seen):
            return True
        seen.add(key)
    return False
