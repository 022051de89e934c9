"""What a graph is, whatever process it was made in: by this a program that was made from it is found on disk."""

from __future__ import annotations

from tandem.graph.ir import Graph, Origin
from tandem.graph.serialize import Writer
from tandem.ops.region import Region
from tandem.program import stored
from tandem.program.request import Request, Source


def identify_by_graph(request: Request, source: Source) -> None:
    """Gives a request the key of its graph, and numbers to where the nodes come from."""
    places = list(_origins(source.graph))
    numbers = {id(origin): i for i, origin in enumerate(places)}
    request.number = lambda origin: numbers.get(id(origin))
    request.origin = lambda number: places[number]
    number = {v: i for i, v in enumerate(source.graph.inputs)}
    try:
        described = (
            _Text().whole(source), source.layouts, list(source.positions), sorted(number[v] for v in source.on_host), source.writes,
            source.devices, source.details, request.options, request.name,
        )  # fmt: skip
        request.key = stored.key_of(request.all_devices, described)
    except TypeError:  # an operator with something inside that has no text of its own
        request.key = ""


def _origins(graph: Graph):
    found: dict[int, Origin] = {}
    stack = [graph]
    while stack:
        for node in stack.pop().nodes:
            if isinstance(node.source, Origin):
                found[id(node.source)] = node.source
            if isinstance(node.op, Region):
                stack.extend(node.op.graphs())
    return found.values()


class _Text(Writer):
    """A graph but for where it comes from and the sizes that it met first."""

    def whole(self, source: Source) -> tuple:
        graph = source.graph
        symbols = graph.symbols
        sizes = [(symbols.origins, sorted(symbols._not_one), sorted(symbols._signed))]
        guards = [(relation, self.value(expression)) for relation, expression in symbols.guards]
        marked = {**self.graph(graph), "saved": [(v.node.id, v.index) for v in source.saved]}
        return sizes, guards, marked

    def graph(self, graph: Graph) -> dict:
        found = super().graph(graph)
        for item in found["nodes"]:
            item.pop("source", None)
        return found
