"""replace_pattern: calls that look like a function are replaced by another."""

from __future__ import annotations

from typing import NamedTuple

from tandem.torch.fx.graph import Graph, fetch
from tandem.torch.fx.module import GraphModule, symbolic_trace
from tandem.torch.fx.node import Node


class Match(NamedTuple):
    """Where a pattern was found: the node of its result, and the graph's node for each of the pattern's."""

    anchor: Node
    nodes_map: dict


def replace_pattern(gm: GraphModule, pattern, replacement) -> list[Match]:
    """Puts replacement wherever the graph has calls as pattern makes them; both are functions or modules of the same inputs.

    >>> gm = td.torch.fx.symbolic_trace(lambda x, y: td.torch.relu(x + y))
    >>> found = td.torch.fx.replace_pattern(gm, lambda a, b: a + b, lambda a, b: a * b)
    >>> gm(td.tensor([3.0]), td.tensor([2.0]))
    tensor([6.])
    """
    wanted, other = (_graph_of(p) for p in (pattern, replacement))
    result = wanted.output_node().args[0]
    inputs = [n for n in wanted.nodes if n.op == "placeholder"]
    found: list[Match] = []
    taken: set[Node] = set()
    for node in gm.graph.nodes:
        mapped: dict[Node, Node] = {}
        if not _same(result, node, mapped):
            continue
        inner = [there for here, there in mapped.items() if here.op != "placeholder"]
        if taken.intersection(inner) or any(
            user not in inner for there in inner if there is not node for user in there.users
        ):
            continue
        taken.update(inner)
        found.append(Match(node, mapped))
    for match in found:
        _put(gm, match, other, [match.nodes_map[n] for n in inputs])
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return found


def _graph_of(program) -> Graph:
    if isinstance(program, Graph):
        return program
    return (program if isinstance(program, GraphModule) else symbolic_trace(program)).graph


def _same(here: Node, there: Node, mapped: dict) -> bool:
    """Whether a node of the pattern is that of the graph, with all that it is made of."""
    if here in mapped:
        return mapped[here] is there
    if here.op == "placeholder":
        mapped[here] = there
        return True
    if here.op != there.op or here.target != there.target:
        return False
    if len(here.args) != len(there.args) or here.kwargs.keys() != there.kwargs.keys():
        return False
    mapped[here] = there
    pairs = [*zip(here.args, there.args, strict=True), *((here.kwargs[k], there.kwargs[k]) for k in here.kwargs)]
    return all(_same_value(a, b, mapped) for a, b in pairs)


def _same_value(a, b, mapped: dict) -> bool:
    if isinstance(a, Node):
        if a.op == "placeholder" and not isinstance(b, Node):
            return mapped.setdefault(a, b) == b
        return isinstance(b, Node) and _same(a, b, mapped)
    if isinstance(a, (tuple, list)):
        return (
            isinstance(b, (tuple, list))
            and len(a) == len(b)
            and all(_same_value(x, y, mapped) for x, y in zip(a, b, strict=True))
        )
    return type(a) is type(b) and a == b


def _put(gm: GraphModule, match: Match, replacement: Graph, inputs: list):
    copies = dict(zip((n for n in replacement.nodes if n.op == "placeholder"), inputs, strict=True))
    with gm.graph.inserting_before(match.anchor):
        made = gm.graph.graph_copy(replacement, copies)
    if replacement.owning_module is not None:
        for node in replacement.nodes:
            if node.op in ("call_module", "get_attr"):
                gm._take(replacement.owning_module, node.target)
                fetch(gm, node.target)
    match.anchor.replace_all_uses_with(made)
