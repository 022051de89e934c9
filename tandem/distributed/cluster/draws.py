"""Random numbers of a run that do not depend on where its nodes are.

Note [Random numbers over tasks]
In one process a run draws from a generator, one node after the other. Where it is known before the run how much each node draws,
a node's part of that stream is known too: the run's seed and offset are fed to the tasks, and each node begins at its own place.
So the numbers are those of one process. Where sizes are unknown, and in runs with loops, queues or Python functions, a run has a
seed of its own, and each node a stream by its number: the same on any cluster.
"""

from __future__ import annotations

from tandem import dtypes
from tandem.graph.ir import Type, Value
from tandem.session.graph import Graph, StepNode, infer
from tandem.session.nodes import Call, Fed, Host
from tandem.session.program import draws_from_the_run, streams_of


class Draws:
    """start: node that draws -> where it begins, counted from the offset of the run. advance: how much a run draws.
    values: seed and offset, which are fed."""

    def __init__(self, graph: Graph, nodes: list[StepNode], make):
        self.start: dict[StepNode, int] = {}
        self.advance = 0
        self.values: list[Value] = []
        drawing = [n for n in nodes if not isinstance(n.op, Fed) and draws_from_the_run(n.op)]
        self.any = bool(drawing)
        if not drawing or any(isinstance(n.op, Host) or n.op.hand_wired for n in nodes):
            return
        start, used = {}, 0
        for node in drawing:
            count = _drawn(graph, node) if isinstance(node.op, Call) and len(streams_of(node.op)) == 1 else None
            if not isinstance(count, int):
                return
            start[node] = used
            used += count
        number = Type(dtypes.int64, ())
        self.start, self.advance = start, used
        self.values = [
            make(Fed("placeholder"), (), (number,), f"run/{name}", -1.0, None).outputs[0] for name in ("seed", "offset")
        ]


def _drawn(graph: Graph, node: StepNode):
    """How many blocks of random numbers a node draws: a number, or something with unknown sizes in it."""
    found = []

    def run(trace, values):
        results = node.op.run(trace, node, values)
        found.append(trace.rng_advance)
        return results

    infer(graph, run, node.inputs)
    return found[0]
