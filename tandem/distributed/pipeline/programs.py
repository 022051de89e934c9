"""The programs of a stage, from the graph of its forward and backward pass: forward, backward, and backward in two.

Note [Effects of a stage]
All ranks of a stage must make the same collectives in the same program, though what a rank needs of them may differ (one rank
takes a summand, others take zeros). So which program a collective is in follows from the graph of whole tensors, where all ranks
agree: `level` of a node is 0 for what the outputs need, 1 for what the gradients that go out need, 2 for the rest. What
collectives give is always kept for later programs, never made again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tandem.ops as F
from tandem import _runtime
from tandem.autodiff.partition import saved_values
from tandem.graph.ir import Builder, Graph, Node, Value, source_scope
from tandem.ops.define import add_input


@dataclasses.dataclass
class Programs:
    forward: Graph  # inputs -> outputs, then what backward needs
    backward: Graph  # gradients in, what was saved -> gradients out, gradients of weights
    for_inputs: Graph  # the same -> gradients out, then what for_weights needs
    for_weights: Graph  # the same, then that -> gradients of weights
    adding: dict[
        str, Graph
    ]  # "backward", "for_weights": with sums of gradients so far as last inputs, to which they add


def levels(graph: Graph, outputs: int, gradients_out: int) -> dict[Node, int]:
    """0 for nodes that the first outputs need, 1 for those that the next ones need, 2 for others."""
    found: dict[Node, int] = {}
    for level, values in enumerate((graph.outputs[:outputs], graph.outputs[outputs : outputs + gradients_out])):
        for node in _ancestors([v.node for v in values]):
            found.setdefault(node, level)
    return {n: found.get(n, 2) for n in graph.nodes}


def programs_of(
    graph: Graph, gradients_in: int, outputs: int, gradients_out: int, level: Callable[[Node], int], recompute: bool
) -> Programs:
    """graph: inputs and then gradients in -> outputs, gradients out, gradients of weights
    recompute: whether forward saves its inputs, and what collectives gave, only"""
    count = len(graph.inputs) - gradients_in
    given, incoming = graph.inputs[:count], graph.inputs[count:]
    results, found = graph.outputs[:outputs], graph.outputs[outputs:]
    effects: list[list[Node]] = [[], [], []]
    for n in graph.nodes:
        if n.op.effect:
            effects[level(n)].append(n)
    computed = set(_ancestors([*(v.node for v in results), *effects[0]]))
    keep = {n for n in computed if n.op.effect} if recompute else computed
    saved = saved_values(given, results, incoming, found + _read_by(effects[1] + effects[2]), keep, graph.nodes)
    forward = extract(graph, given, [*results, *saved], effects[0], "forward")
    before = [*incoming, *saved]
    out, own = found[:gradients_out], found[gradients_out:]
    shared = _shared(before, out, own, effects)
    backward = extract(graph, before, found, effects[1] + effects[2], "backward")
    for_weights = extract(graph, [*before, *shared], own, effects[2], "weights")
    return Programs(
        forward, backward, extract(graph, before, [*out, *shared], effects[1], "inputs"), for_weights,
        {"backward": _adding(backward, len(own)), "for_weights": _adding(for_weights, len(own))},
    )  # fmt: skip


def _adding(graph: Graph, count: int) -> Graph:
    """The graph with as many more inputs, to which its last outputs are added."""
    made = Graph(graph.symbols, f"{graph.name}_adding")
    made.inputs, made.nodes = list(graph.inputs), list(graph.nodes)
    first = len(graph.outputs) - count
    _runtime.enter_trace()
    try:
        with Builder(made) as builder:
            sums = [F.Add()(add_input(builder, v.type), v) for v in graph.outputs[first:]]
    finally:
        _runtime.exit_trace()
    made.outputs = [*graph.outputs[:first], *sums]
    return made


def _read_by(nodes: list[Node]) -> list[Value]:
    return [v for n in nodes for v in n.inputs]


def _shared(given: list[Value], first: list[Value], second: list[Value], effects) -> list[Value]:
    """What the first half of backward computes and the second one reads."""
    inside = set(_needed(first + _read_by(effects[1]), set(given))) | set(effects[1])
    later = _needed(second + _read_by(effects[2]), set(given), inside)
    found = dict.fromkeys(v for n in [*later, *effects[2]] for v in n.inputs if v.node in inside)
    found.update(dict.fromkeys(v for v in second if v.node in inside))
    return [v for v in found if v not in set(given)]


def _ancestors(nodes: list[Node]) -> list[Node]:
    found: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(v.node for v in node.inputs)
    return sorted(found, key=lambda n: n.id)


def _needed(outputs: list[Value], given: set[Value], without: set[Node] = frozenset()) -> list[Node]:
    """The nodes that compute values from given ones, in order; none of `without` and what only those need."""
    found: set[Node] = set()
    stack = [v for v in outputs if v not in given]
    while stack:
        node = stack.pop().node
        if node not in found and node not in without:
            found.add(node)
            stack.extend(v for v in node.inputs if v not in given)
    return sorted(found, key=lambda n: n.id)


def extract(graph: Graph, inputs, outputs: list[Value], effects: list[Node], name: str) -> Graph:
    """The part of a graph that computes some values from others, with some of its effects."""
    part = Graph(graph.symbols, f"{graph.name}_{name}")
    given = set(inputs)
    nodes = set(_needed(outputs + _read_by(effects), given)) | set(effects)
    _runtime.enter_trace()
    try:
        with Builder(part) as builder:
            made = {v: add_input(builder, v.type) for v in inputs}
            copies: dict = {}
            for node in sorted(nodes, key=lambda n: n.id):
                if node.op.checks and name != "forward":  # forward has checked it
                    made[node.outputs[0]] = made[node.inputs[0]]
                    continue
                with source_scope(node.source):
                    new = builder.again(node, tuple(made[v] for v in node.inputs), copies)
                for old, fresh in zip(node.outputs, new.outputs, strict=True):
                    made.setdefault(old, fresh)
    finally:
        _runtime.exit_trace()
    part.outputs = [made[v] for v in outputs]
    return part
