"""Operators that are divided in the same way: those of equal layers.

Note [Tied layers]
The integer program of a deep model has the same part for each of its layers. In a large graph, nodes whose surroundings are the
same share their variables, so that a model of many layers takes about as long as one of a few. Surroundings are what a node is, and
what its neighbours are, up to some distance. What is tied cannot differ from layer to layer, so the solution is the best of those
that divide equal layers equally.
"""

from __future__ import annotations

from tandem.distributed.automatic.step import Step
from tandem.graph.ir import Node

DISTANCE = 2
LARGE = 400  # nodes from which on layers are tied


def ties_of(step: Step, kinds: dict) -> dict[Node, int]:
    """The class of each node: nodes of one class are divided alike. kinds: what else tells inputs apart, by value."""
    nodes = step.graph.nodes
    if len(nodes) < LARGE:
        return {n: i for i, n in enumerate(nodes)}
    wants: dict = {}
    for v, want in zip(step.graph.outputs, step.wants, strict=True):
        wants.setdefault(v, []).append("weight" if isinstance(want, int) else want)
    numbers: dict = {}

    def number(key) -> int:
        return numbers.setdefault(key, len(numbers))

    def described(n: Node) -> int:
        fields = repr([getattr(n.op, f) for f in n.op._fields]) if not n.op.is_input else kinds[n.outputs[0]]
        types = repr([v.type for v in (*n.inputs, *n.outputs)])
        return number((n.op.name, fields, types, tuple(tuple(wants.get(v, ())) for v in n.outputs)))

    readers: dict[Node, list[tuple[Node, int, int]]] = {n: [] for n in nodes}
    for n in nodes:
        for i, v in enumerate(n.inputs):
            readers[v.node].append((n, i, v.index))
    found = {n: described(n) for n in nodes}
    for _ in range(DISTANCE):
        found = {
            n: number((
                found[n], tuple((found[v.node], v.index) for v in n.inputs),
                tuple(sorted((found[r], i, k) for r, i, k in readers[n])),
            ))
            for n in nodes
        }  # fmt: skip
    return found
