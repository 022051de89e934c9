"""expand_composites: operators that are made of others become these, so that the other passes see through them."""

from __future__ import annotations

from tandem.graph.ir import Graph
from tandem.ops.define import Composite
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild


@graph_pass
def expand_composites(graph: Graph) -> Graph:
    while any(isinstance(node.op, Composite) for node in graph.nodes):  # they may be made of composites in turn
        graph = rebuild(graph, _expanded, controlled=True)
    return graph


def _expanded(node, inputs):
    return node.op.expand(*inputs) if isinstance(node.op, Composite) else None
