"""eliminate_dead: nodes that no output, mutation, effect or check needs or waits for are left out."""

from __future__ import annotations

from tandem.graph.ir import Graph
from tandem.passes.graph_pass import graph_pass


@graph_pass
def eliminate_dead(graph: Graph) -> Graph:
    return eliminate(graph)


def eliminate(graph: Graph) -> Graph:
    needed = set()
    stack = [v.node for v in graph.roots()] + [n for n in graph.nodes if n.op.effect or n.op.stays]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack.extend([v.node for v in node.inputs])
            stack.extend(node.control)
    nodes = [n for n in graph.nodes if n in needed or n.op.is_input]
    if len(nodes) == len(graph.nodes):
        return graph
    result = Graph(graph.symbols, graph.name)
    result.inputs, result.outputs, result.mutations = list(graph.inputs), list(graph.outputs), list(graph.mutations)
    result.nodes = nodes
    return result
