"""expand_composites: operators that are made of others become these, so that the other passes see through them."""

from __future__ import annotations

from tandem.codegen.expand import expand
from tandem.graph.ir import Graph
from tandem.passes.graph_pass import graph_pass


@graph_pass
def expand_composites(graph: Graph) -> Graph:
    return expand(graph)[0]
