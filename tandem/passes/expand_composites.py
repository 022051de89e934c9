"""expand_composites: operators that are made of others become these, so that the other passes see through them."""

from __future__ import annotations

from tandem.graph.ir import Builder, Graph, Value, current_builder
from tandem.ops.define import Composite, add_input
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild


@graph_pass
def expand_composites(graph: Graph) -> Graph:
    formulas: dict[tuple, _Formula] = {}

    def expanded(node, inputs):
        if not isinstance(node.op, Composite):
            return None
        key = (node.op, *[(v.type.dtype, v.type.weak, v.type.shape) for v in inputs])
        found = formulas.get(key)
        if found is None:
            found = formulas[key] = _Formula(graph, node.op, inputs)
        return found.on(inputs)

    while any(isinstance(node.op, Composite) for node in graph.nodes):  # they may be made of composites in turn
        graph = rebuild(graph, expanded, controlled=True)
    return graph


class _Formula:
    """What an operator is made of on inputs of these types: layers that repeat ask once."""

    def __init__(self, around: Graph, op: Composite, inputs: tuple[Value, ...]):
        graph = Graph(around.symbols, op.name)
        with Builder(graph) as builder:
            made = op.expand(*[add_input(builder, v.type) for v in inputs])
        place = {v: i for i, v in enumerate(graph.inputs)}
        self.nodes = []  # (operator, places of its inputs, types)
        for node in graph.nodes:
            if not node.op.is_input:
                self.nodes.append((node.op, [place[v] for v in node.inputs], tuple([v.type for v in node.outputs])))
                for v in node.outputs:
                    place[v] = len(place)
        self.several = not isinstance(made, Value)
        self.results = [place[v] for v in (made if self.several else [made])]

    def on(self, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        builder, values = current_builder(), list(inputs)
        for op, places, types in self.nodes:
            values += builder.add(op, tuple([values[i] for i in places]), types).outputs
        results = tuple([values[i] for i in self.results])
        return results if self.several else results[0]
