"""simplify_regions: the graphs inside regions go through the other passes; what is the same in every iteration moves out."""

from __future__ import annotations

from tandem.graph.ir import Graph
from tandem.ops.region import Region
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild


@graph_pass
def simplify_regions(graph: Graph) -> Graph:
    if not any(isinstance(node.op, Region) for node in graph.nodes):
        return graph
    return rebuild(graph, _visit)


def _visit(node, inputs):
    if not isinstance(node.op, Region):
        return None
    from tandem.passes.pipeline import run_pipeline

    simplified = [run_pipeline(part) for part in node.op.graphs()]
    if all(a is b for a, b in zip(simplified, node.op.graphs(), strict=True)):
        return None
    return node.op.with_graphs(*simplified)(*inputs)
