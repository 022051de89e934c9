"""rebuild: a graph made from another one node by node, which is how passes change graphs.

Nodes are immutable, so those that stay as they are belong to both graphs; only what changes is made again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import tandem.ops as F
from tandem import _runtime
from tandem.graph.ir import Builder, Graph, Node, Value, source_scope
from tandem.ops.movement import root

Visit = Callable[[Node, tuple[Value, ...]], "Value | tuple[Value, ...] | None"]


def rebuild(graph: Graph, visit: Visit, controlled: bool = False) -> Graph:
    """graph with every node replaced by what `visit(node, inputs)` gives for it; `inputs` are its inputs in the new graph.

    None stands for the same operator on the new inputs. What visit makes with operators goes into the new graph, with the
    source of the node it stands for. Equal operators on equal inputs become one node. The input graph is not changed; if nothing
    changes it is given back itself.

    Nodes with control inputs are not visited unless `controlled`: then what stands for one must be made of nodes that visit makes
    (Note [Control inputs] in graph/ir.py).
    """
    result = Graph(graph.symbols, graph.name)
    made: dict[Value, Value] = {}
    waited = {n for node in graph.nodes for n in node.control}
    stand_in: dict[Node, tuple[Node, ...]] = {}  # of those that others wait for
    changed = False
    _runtime.enter_trace()
    try:
        with Builder(result) as builder, source_scope(None) as scope:
            for node in graph.nodes:
                if node.op.is_input:
                    builder.adopt(node)
                    for v in node.outputs:
                        made[v] = v
                    continue
                inputs = tuple([made[v] for v in node.inputs])
                scope.set(node.source)
                control = _stand_ins(node, stand_in) if node.control else ()
                builder.place = (control, node.device) if control or node.device is not None else None
                outputs = visit(node, inputs) if controlled or not node.control else None
                if outputs is None:
                    if control == node.control and all(map(operator.is_, inputs, node.inputs)):
                        new = builder.adopt(node)
                    else:
                        new = builder.add(node.op, inputs)
                    changed = changed or new is not node
                    outputs, stands = new.outputs, (new,)
                else:
                    stands = ()
                if isinstance(outputs, Value):
                    outputs = (outputs,)
                if node in waited:
                    stand_in[node] = stands or tuple(dict.fromkeys(v.node for v in outputs if not v.op.is_input))
                for old, new in zip(node.outputs, outputs, strict=True):
                    made[old] = new
                    changed = changed or old is not new
            if not changed:
                return graph
            builder.place = None
            result.inputs = list(graph.inputs)
            result.outputs = [None if v is None else _own_memory(builder, v, made[v]) for v in graph.outputs]
    finally:
        _runtime.exit_trace()
    result.mutations = [(position, made[v]) for position, v in graph.mutations]
    return result


def _stand_ins(node: Node, stand_in: dict[Node, tuple[Node, ...]]) -> tuple[Node, ...]:
    return tuple(dict.fromkeys(new for n in node.control for new in stand_in.get(n, () if n.op.is_input else (n,))))


def _own_memory(builder: Builder, old: Value, new: Value) -> Value:
    """new as an output where old was one. An output that used to be computed must not turn into a look at an input's memory,
    which the program may write."""
    if new is old or not root(new).op.is_input:
        return new
    return builder.add(F.Copy(), (new,)).outputs[0]


def use_counts(graph: Graph) -> dict[Value, int]:
    """How often each value is used, by nodes and as output or mutation."""
    counts: dict[Value, int] = {}
    for node in graph.nodes:
        for v in node.inputs:
            counts[v] = counts.get(v, 0) + 1
    for v in graph.roots():
        counts[v] = counts.get(v, 0) + 1
    return counts
