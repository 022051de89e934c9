"""A graph cut into stages, and the programs of each: forward, backward, and backward in two.

Every rank makes the stages of all ranks, from the same graph, so that all know what is sent where without asking.
"""

from __future__ import annotations

import dataclasses

import tandem.ops as F
from tandem import _runtime
from tandem.autodiff.partition import partition
from tandem.autodiff.reverse import backpropagate
from tandem.distributed.pipeline.assign import ANYWHERE, assign
from tandem.graph.ir import Builder, Graph, Node, Value, source_scope
from tandem.ops.define import add_input


@dataclasses.dataclass
class Stage:
    """What one stage computes. Values that go from stage to stage are those of the graph that was cut."""

    number: int
    inputs: list[Value]  # of forward: from other stages, or inputs of the whole graph
    outputs: list[Value]  # read by later stages; of the last stage the loss
    forward: Graph  # inputs -> outputs, then what backward needs
    gradients_in: list[Value]  # outputs whose gradients come in
    gradients_out: list[Value]  # inputs from other stages whose gradients go out
    weights: list[Value]  # inputs whose gradients are computed
    backward: Graph  # gradients in, what was saved -> gradients out, gradients of weights
    for_inputs: Graph  # the same -> gradients out, then what for_weights needs
    for_weights: Graph  # the same, then that -> gradients of weights


def cut(graph: Graph, weights: list[Value], stages: int | None, recompute: bool = False) -> list[Stage]:
    """The stages of a graph with one output, the loss. weights: the inputs to differentiate by; recompute: whether forward saves
    its inputs only."""
    stage_of, count = assign(graph, set(weights), stages)
    producer = {v: s for node, s in stage_of.items() if s != ANYWHERE for v in node.outputs}
    readers: dict[Value, set[int]] = {}
    nodes = [_nodes(graph, stage_of, s, count) for s in range(count)]
    for s, some in enumerate(nodes):
        for node in some:
            for v in node.inputs:
                if producer.get(v, s) != s:
                    readers.setdefault(v, set()).add(s)
    for v in graph.outputs:
        producer.setdefault(v, count - 1)
    made: list[Stage] = []
    flows: set[Value] = set(graph.outputs)  # whose gradients come from a later stage
    for s in reversed(range(count)):
        outputs = [v for v in readers if producer[v] == s] + (graph.outputs if s == count - 1 else [])
        inputs = _inputs(graph, nodes[s], outputs)
        wanted = [v for v in inputs if v in producer and v.dtype.is_inexact] + [v for v in inputs if v in set(weights)]
        stage = _stage(
            s, nodes[s], inputs, outputs, [v for v in outputs if v in flows], wanted, set(weights), recompute
        )
        flows.update(stage.gradients_out)
        made.insert(0, stage)
    return made


def _nodes(graph: Graph, stage_of: dict[Node, int], stage: int, count: int) -> list[Node]:
    """The nodes that a stage computes, with those that each stage computes for itself."""
    roots = [n for n, s in stage_of.items() if s == stage]
    if stage == count - 1:
        roots += [v.node for v in graph.outputs]
    found: set[Node] = set()
    stack = roots
    while stack:
        node = stack.pop()
        if node in found or node.op.name == "input" or stage_of[node] not in (stage, ANYWHERE):
            continue
        found.add(node)
        stack.extend(v.node for v in node.inputs)
    return [n for n in graph.nodes if n in found]


def _inputs(graph: Graph, nodes: list[Node], outputs: list[Value]) -> list[Value]:
    """What a stage reads but does not compute: values of other stages first."""
    inside = set(nodes)
    read = dict.fromkeys(v for node in nodes for v in node.inputs if v.node not in inside)
    read.update(dict.fromkeys(v for v in outputs if v.node not in inside))
    own = set(graph.inputs)
    return [v for v in read if v not in own] + [v for v in graph.inputs if v in read]


def _stage(number, nodes, inputs, outputs, gradients_in, wanted, weights, recompute) -> Stage:
    joint = Graph(name=f"stage{number}")
    _runtime.enter_trace()
    try:
        with Builder(joint) as builder:
            made = {v: add_input(builder, v.type) for v in inputs}
            copies: dict = {}
            for node in nodes:
                with source_scope(node.source):
                    new = builder.again(node, tuple(made[v] for v in node.inputs), copies)
                made.update(zip(node.outputs, new.outputs, strict=True))
            joint.outputs = [made[v] for v in outputs]
            forward = list(joint.nodes)
            grads = {
                v: builder.add(F.Incoming(i, v.type), ()).outputs[0] for i, v in enumerate(outputs) if v in gradients_in
            }
            results = backpropagate(forward, joint.outputs, [grads.get(v) for v in outputs], [made[v] for v in wanted])
    finally:
        _runtime.exit_trace()
    reached = [(v, r) for v, r in zip(wanted, results, strict=True) if r is not None]
    split = partition(
        joint,
        [grads[v] for v in gradients_in],
        [r for _, r in reached],
        set(),
        frozenset() if recompute else set(forward),
    )
    del joint.nodes[len(forward) :]
    joint.outputs = [*joint.outputs, *split.saved]
    going_out = [v for v, _ in reached if v not in weights]
    return Stage(
        number, inputs, outputs, joint, gradients_in, going_out, [v for v, _ in reached if v in weights],
        split.first, *_in_two(split.first, len(going_out)),
    )  # fmt: skip


def _in_two(backward: Graph, count: int) -> tuple[Graph, Graph]:
    """The first `count` outputs of a graph, with whatever else is needed; and the others, computed from the inputs and that."""
    first, second = backward.outputs[:count], backward.outputs[count:]
    inside = set(_ancestors(first))
    shared = dict.fromkeys(
        v
        for node in _ancestors(second)
        if node not in inside
        for v in node.inputs
        if v.node in inside and v.node.op.name != "input"
    )
    shared.update(dict.fromkeys(v for v in second if v.node in inside and v.node.op.name != "input"))
    return (
        _extract(backward, backward.inputs, [*first, *shared], "inputs"),
        _extract(backward, [*backward.inputs, *shared], second, "weights"),
    )


def _ancestors(values: list[Value]) -> list[Node]:
    found: set[Node] = set()
    stack = [v.node for v in values]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(v.node for v in node.inputs)
    return sorted(found, key=lambda n: n.id)


def _extract(graph: Graph, inputs, outputs: list[Value], name: str) -> Graph:
    """The part of a graph that computes some values from others."""
    part = Graph(graph.symbols, f"{graph.name}_{name}")
    _runtime.enter_trace()
    try:
        with Builder(part) as builder:
            made = {v: add_input(builder, v.type) for v in inputs}
            copies: dict = {}
            for node in _needed(outputs, set(made)):
                with source_scope(node.source):
                    new = builder.again(node, tuple(made[v] for v in node.inputs), copies)
                made.update(zip(node.outputs, new.outputs, strict=True))
    finally:
        _runtime.exit_trace()
    part.outputs = [made[v] for v in outputs]
    return part


def _needed(outputs: list[Value], given: set[Value]) -> list[Node]:
    found: set[Node] = set()
    stack = [v for v in outputs if v not in given]
    while stack:
        value = stack.pop()
        if value.node not in found:
            found.add(value.node)
            stack.extend(v for v in value.node.inputs if v not in given)
    return sorted(found, key=lambda n: n.id)
