"""sink_reshapes: elementwise work between two products happens in their shape, not in the one that the user sees in between.

    reshape[S](f(reshape[T](a), reshape[T](b)))  ->  f(a, b)            a, b: of shape S

A layer of a transformer multiplies matrices of (batch * length) rows and shows the results as (batch, length, width). What lies
between two of its products then loops over other axes than their gradients and the sums over rows that belong to these, and
cannot share a kernel with them.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.codegen.buffer import same_shape
from tandem.graph.ir import Graph, Node, Value
from tandem.ops.define import Elementwise
from tandem.ops.movement import Reshape
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild


@graph_pass
def sink_reshapes(graph: Graph) -> Graph:
    if sum(isinstance(n.op, Reshape) for n in graph.nodes) < 2:
        return graph
    wanted = _wanted(graph)
    if not wanted:
        return graph

    def visit(node: Node, inputs):
        shapes = wanted.get(node)
        if shapes is None:
            return None
        if isinstance(node.op, Reshape):  # back to the shape that it had all along
            source = inputs[0]
            whole = isinstance(source.op, Reshape) and same_shape(source.node.inputs[0].shape, node.outputs[0].shape)
            return source.node.inputs[0] if whole else None
        tensors = [v for v in inputs if v.shape]
        sources = [v.node.inputs[0] for v in tensors if isinstance(v.op, Reshape)]
        shown = node.outputs[0].shape
        if not sources or len(sources) < len(tensors) or not all(same_shape(v.shape, shown) for v in tensors):
            return None
        shape = sources[0].shape
        if not all(same_shape(v.shape, shape) for v in sources) or not any(same_shape(shape, s) for s in shapes):
            return None
        return F.Reshape(shown)(node.op(*[v.node.inputs[0] if v.shape else v for v in inputs]))

    return rebuild(graph, visit)


def _wanted(graph: Graph) -> dict[Node, list[tuple]]:
    """The shapes in which elementwise nodes are read in the end, and the nodes that bring them there."""
    users: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for v in node.inputs:
            users.setdefault(v, []).append(node)
    found: dict[Node, list[tuple]] = {}
    for node in reversed(graph.nodes):
        if not isinstance(node.op, Elementwise) or node.control or len(node.outputs) != 1:
            continue
        shapes: list[tuple] = []
        for user in users.get(node.outputs[0], ()):
            if isinstance(user.op, Reshape) and not user.control:
                found.setdefault(user, [])
                more = [user.outputs[0].shape]
            else:
                more = found.get(user, [])
            shapes += [s for s in more if not any(same_shape(s, t) for t in shapes)]
        if shapes:
            found[node] = shapes
    return found
