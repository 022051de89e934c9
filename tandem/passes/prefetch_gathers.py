"""prefetch_gathers: the parameters of a fully sharded layer are gathered while the layer before it is computed.

    a = all_gather(p); x = x @ a; b = all_gather(q); x = x @ b   ->   a = all_gather(p); b = all_gather(q); x = x @ a; x = x @ b

What one layer gathers is a unit: gathers with no use of any of them in between. A unit comes before the first use of the unit
before it, so there is one layer's worth of whole parameters besides the one that is computed with, and no more. In backward the
gathers of a layer pass the reduce-scatters of the one behind it. The last layer of forward is the first one of backward: it is
gathered again behind its last use, beside the loss.

Only for gathers that run beside what is computed (Note [Beside] in ops/collective.py) of parameters that fully_shard divided, as
their tags say. The order of collectives changes, on all ranks alike: it depends on nothing but the order of the nodes. No other
effect is passed, so a rank that alone ends its program between forward and backward, to print a loss, has the same order; one
that does so in the middle of backward has not, and gets an error.
"""

from __future__ import annotations

import itertools

from tandem.graph.ir import Graph, Node, Value
from tandem.ops.again import Again
from tandem.ops.collective import AllGather, ReduceScatter
from tandem.ops.define import Elementwise, Movement
from tandem.passes.graph_pass import graph_pass


@graph_pass
def prefetch_gathers(graph: Graph) -> Graph:
    if not any(map(_is_parameter, graph.nodes)):
        return graph
    nodes = list(graph.nodes)
    units = _units(nodes)
    for before, unit in itertools.pairwise(units):
        nodes = _moved(nodes, before, unit)
    if nodes == list(graph.nodes):
        return graph
    made = Graph(graph.symbols, graph.name)
    made.inputs, made.nodes, made.outputs, made.mutations = graph.inputs, nodes, graph.outputs, graph.mutations
    return made


def _is_parameter(node: Node) -> bool:
    op = node.op
    return isinstance(op, AllGather) and op.beside and not (isinstance(op.tag, int) and op.tag == 0)


def _units(nodes: list[Node]) -> list[list[Node]]:
    """Gathers of parameters in order, those together that come before any use of one of them."""
    units: list[list[Node]] = []
    made: set[Value] = set()  # of the unit that is open
    used = True
    for node in nodes:
        if _is_parameter(node):
            if used:
                units.append([])
                made, used = set(), False
            units[-1].append(node)
            made.update(node.outputs)
        elif not made.isdisjoint(node.inputs):
            used = True
    return units


def _moved(nodes: list[Node], before: list[Node], unit: list[Node]) -> list[Node]:
    """The nodes with a unit, and what makes its operands of parameters, before the first use of the unit before it."""
    place = {node: i for i, node in enumerate(nodes)}
    whole = {v for node in before for v in node.outputs}
    uses = [i for i in range(place[before[-1]] + 1, place[unit[0]]) if not whole.isdisjoint(nodes[i].inputs)]
    if not uses:
        return nodes
    alike = {_source(node.inputs[0]) for node in unit} <= {_source(node.inputs[0]) for node in before}
    first = uses[-1] + 1 if alike else uses[0]
    if any(_stops(node) for node in nodes[first : place[unit[0]]]):
        return nodes
    moved: set[Node] = set()
    for node in unit:
        needed = _needed(node, place, first)
        if needed is None:
            return nodes
        moved |= needed
    ahead = [node for node in nodes[first:] if node in moved]
    return [*nodes[:first], *ahead, *(node for node in nodes[first:] if node not in moved)]


def _source(part: Value) -> Value:
    while isinstance(part.op, Again):
        part = part.node.inputs[0]
    return part


def _stops(node: Node) -> bool:
    return node.op.effect and not (isinstance(node.op, ReduceScatter) and node.op.beside)


def _needed(node: Node, place: dict[Node, int], first: int) -> set[Node] | None:
    """The node and those from `first` on that it is made of; None if something of them has work of its own, or waits."""
    found, stack = set(), [node]
    while stack:
        n = stack.pop()
        if n in found or place[n] < first:
            continue
        if n.control or not (n is node or isinstance(n.op, (Again, Movement, Elementwise))):
            return None
        found.add(n)
        stack += [v.node for v in n.inputs]
    return found
