"""A graph cut into stages: for each a graph of its forward and backward pass together.

Every rank makes the stages of all ranks, from the same graph, so that all know what is sent where without asking.
"""

from __future__ import annotations

import dataclasses

from tandem import _runtime
from tandem.autodiff.reverse import backpropagate
from tandem.distributed.pipeline.assign import ANYWHERE
from tandem.graph.ir import Builder, Graph, Node, Value, source_scope
from tandem.ops.define import add_input


@dataclasses.dataclass
class Joint:
    """What a stage computes, forward and backward. Values that go from stage to stage are those of the graph that was cut."""

    number: int
    inputs: list[Value]  # from other stages, or inputs of the whole graph
    outputs: list[Value]  # read by later stages; of the last stage the loss; and what buffers are afterwards
    gradients_in: list[Value]  # outputs whose gradients come in
    gradients_out: list[Value]  # inputs from other stages whose gradients go out
    weights: list[Value]  # inputs whose gradients are computed
    graph: Graph  # inputs, gradients in -> outputs, gradients out, gradients of weights


def cut(graph: Graph, weights: list[Value], stage_of: dict[Node, int], count: int) -> list[Joint]:
    """The stages of a graph whose first output is the loss. weights: the inputs to differentiate by; stage_of: see assign.py"""
    producer = {v: s for node, s in stage_of.items() if s != ANYWHERE for v in node.outputs}
    for v in graph.outputs:
        producer.setdefault(v, count - 1)
    nodes = [stage_nodes(graph, stage_of, s, count, producer) for s in range(count)]
    readers: dict[Value, None] = {}
    for s, some in enumerate(nodes):
        readers.update(dict.fromkeys(v for node in some for v in node.inputs if producer.get(v, s) != s))
    made: list[Joint] = []
    flows: set[Value] = {graph.outputs[0]}  # whose gradients come from a later stage
    for s in reversed(range(count)):
        outputs = [v for v in readers if producer[v] == s]
        outputs += [v for v in graph.outputs if producer[v] == s and v not in readers]
        stage = joint_of(graph, nodes[s], outputs, [v for v in outputs if v in flows], weights, s)
        flows.update(stage.gradients_out)
        made.insert(0, stage)
    return made


def stage_nodes(graph: Graph, stage_of: dict[Node, int], stage: int, count: int, producer: dict) -> list[Node]:
    """The nodes that a stage computes, with those that each stage computes for itself."""
    stack = [n for n, s in stage_of.items() if s == stage]
    stack += [v.node for v in graph.outputs if producer[v] == stage]
    found: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in found or node.op.is_input or stage_of[node] not in (stage, ANYWHERE):
            continue
        found.add(node)
        stack.extend(v.node for v in node.inputs)
    return [n for n in graph.nodes if n in found]


def joint_of(
    graph: Graph, nodes: list[Node], outputs: list[Value], gradients_in: list[Value], weights: list[Value], number=0
):
    """The stage that computes some nodes of a graph."""
    inputs = _inputs(graph, nodes, outputs)
    given = set(graph.inputs)
    wanted = [v for v in inputs if v not in given and v.dtype.is_inexact] + [v for v in inputs if v in set(weights)]
    joint = Graph(name=f"stage{number}")
    _runtime.enter_trace()
    try:
        with Builder(joint) as builder:
            made = {v: add_input(builder, v.type) for v in inputs}
            incoming = {v: add_input(builder, v.type) for v in gradients_in}
            copies: dict = {}
            for node in nodes:
                with source_scope(node.source):
                    new = builder.again(node, tuple(made[v] for v in node.inputs), copies)
                made.update(zip(node.outputs, new.outputs, strict=True))
            results = [made[v] for v in outputs]
            grads = [incoming.get(v) for v in outputs]
            found = backpropagate(list(joint.nodes), results, grads, [made[v] for v in wanted])
    finally:
        _runtime.exit_trace()
    reached = [(v, r) for v, r in zip(wanted, found, strict=True) if r is not None]
    joint.outputs = [*results, *(r for _, r in reached)]
    own = set(weights)
    out, mine = [v for v, _ in reached if v not in own], [v for v, _ in reached if v in own]
    return Joint(number, inputs, outputs, gradients_in, out, mine, joint)


def _inputs(graph: Graph, nodes: list[Node], outputs: list[Value]) -> list[Value]:
    """What a stage reads but does not compute: values of other stages first."""
    inside = set(nodes)
    read = dict.fromkeys(v for node in nodes for v in node.inputs if v.node not in inside)
    read.update(dict.fromkeys(v for v in outputs if v.node not in inside))
    own = set(graph.inputs)
    return [v for v in read if v not in own] + [v for v in graph.inputs if v in read]
