"""Which stage of a pipeline computes which node of a graph.

Note [Stages of nodes]
A node that depends on arguments and on weights is in the stage that the marks before it say (`td.distributed.stage`), or that the
automatic cut puts it in. Other nodes could be anywhere. What depends on weights only (a cast, a transpose) is in the first stage
that reads it, where its weight then is, too. What depends on arguments and random numbers only is computed by every stage that
reads it: nothing needs to be sent, and random numbers are the same wherever they are drawn.
"""

from __future__ import annotations

from tandem.errors import ValueRangeError
from tandem.graph.ir import Graph, Node, Value
from tandem.graph.work import size_of, work_of

ANYWHERE = -1
_MOST_CUTS = 300  # places that the automatic cut chooses from


def assign(graph: Graph, weights: set[Value], stages: int | None) -> tuple[dict[Node, int], int]:
    """The stage of each node, or ANYWHERE; and the number of stages. stages: how many to cut into; None for those of the marks."""
    on_weights = _dependents(graph, weights)
    on_arguments = _dependents(graph, set(graph.inputs) - weights)
    fixed = [n for n in graph.nodes if n in on_weights and n in on_arguments]
    if stages is None:
        found = _by_marks(fixed)
    else:
        found = _by_work(graph, fixed, stages)
    count = 1 + max(found.values(), default=0)
    users = _users(graph)
    for node in reversed(graph.nodes):
        if node in found or node.op.is_input:
            continue
        if node not in on_weights:
            found[node] = ANYWHERE
        else:
            found[node] = min((found[u] for u in users.get(node, ()) if found[u] != ANYWHERE), default=count - 1)
    return found, count


def _dependents(graph: Graph, values: set[Value]) -> set[Node]:
    found: set[Node] = set()
    for node in graph.nodes:
        if any(v in values or v.node in found for v in node.inputs):
            found.add(node)
    return found


def _users(graph: Graph) -> dict[Node, list[Node]]:
    found: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for v in node.inputs:
            found.setdefault(v.node, []).append(node)
    return found


def _by_marks(fixed: list[Node]) -> dict[Node, int]:
    found: dict[Node, int] = {}
    for node in fixed:
        before = max((found.get(v.node, 0) for v in node.inputs), default=0)
        found[node] = before + (node.op.name == "stage_boundary")
    return found


def _by_work(graph: Graph, fixed: list[Node], stages: int) -> dict[Node, int]:
    """Cuts the nodes, in the order of the program, into stages of about equal work, where little must be sent."""
    if stages > len(fixed):
        raise ValueRangeError("pipeline", f"{stages} stages are more than the {len(fixed)} operators of the function")
    sent = _bytes_across(graph, fixed)
    work = [0.0]
    for node in fixed:
        work.append(work[-1] + work_of(node))
    places = sorted(sorted(range(1, len(fixed)), key=lambda i: (sent[i], i))[:_MOST_CUTS])
    cuts = _balanced(work, sent, places, stages)
    found, stage = {}, 0
    for i, node in enumerate(fixed):
        if stage < len(cuts) and i == cuts[stage]:
            stage += 1
        found[node] = stage
    return found


def _bytes_across(graph: Graph, fixed: list[Node]) -> list[int]:
    """For each place before a node, the bytes of what is computed before and read after it."""
    number = {node: i for i, node in enumerate(fixed)}
    last: dict[Value, int] = {}
    for node in fixed:
        for v in node.inputs:
            if v.node in number:
                last[v] = number[node]
    change = [0] * (len(fixed) + 1)
    for v, end in last.items():
        change[number[v.node] + 1] += size_of(v)
        change[end + 1] -= size_of(v)
    sent, now = [], 0
    for c in change:
        now += c
        sent.append(now)
    return sent


def _balanced(work: list[float], sent: list[int], places: list[int], stages: int) -> list[int]:
    """The places of the cuts: the least work of the busiest stage, and of those the fewest bytes."""
    end = len(work) - 1
    best = {p: ((work[p], sent[p]), (p,)) for p in places}
    for _ in range(stages - 2):
        longer = {}
        for p in places:
            options = [
                ((max(most, work[p] - work[q]), bytes + sent[p]), (*cuts, p))
                for q, ((most, bytes), cuts) in best.items()
                if q < p
            ]
            if options:
                longer[p] = min(options)
        best = longer
    if stages == 1:
        return []
    options = [((max(most, work[end] - work[q]), bytes), cuts) for q, ((most, bytes), cuts) in best.items()]
    least = min(most for (most, _), _ in options)
    good = [o for o in options if o[0][0] <= 1.05 * least]
    return list(min(good, key=lambda o: (o[0][1], o[0][0]))[1])
