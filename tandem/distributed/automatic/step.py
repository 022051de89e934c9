"""What is to be divided over a mesh: a graph of whole tensors with forward and backward pass, of a step or of one stage of it."""

from __future__ import annotations

import dataclasses
import hashlib

from tandem import _runtime
from tandem.autodiff.reverse import backpropagate
from tandem.distributed.pipeline.cut import Joint
from tandem.distributed.traced import Traced
from tandem.errors import ValueRangeError
from tandem.graph.ir import Builder, Graph, Node, Value
from tandem.ops.create import Constant
from tandem.passes.common_subexpressions import common_subexpressions
from tandem.passes.eliminate_dead import eliminate_dead
from tandem.passes.simplify import simplify

WHOLE, FREE = "whole", "free"


@dataclasses.dataclass
class Step:
    """weights: positions of inputs that are trained; wants: for each output WHOLE, FREE (any placement, another stage takes it), or
    the position of the weight whose gradient it is; forward: so many of the first outputs are of the forward pass; arriving:
    positions of inputs that other stages send; micro_batches: how often it runs in a training step, after which gradients are
    summed once."""

    graph: Graph
    weights: list[int]
    wants: list
    forward: int
    arriving: frozenset[int] = frozenset()
    micro_batches: int = 1

    def content(self) -> str:
        """Equal for steps that compute the same, wherever they are in a model."""
        return content_of(
            self.graph, (self.weights, self.wants, self.forward, sorted(self.arriving), self.micro_batches)
        )

    def forward_nodes(self) -> set[Node]:
        found: set[Node] = set()
        stack = [v.node for v in self.graph.outputs[: self.forward]]
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                stack.extend(v.node for v in node.inputs)
        return found


def whole_step(traced: Traced) -> Step:
    """The loss, what buffers are afterwards, and the gradients of all weights, in one graph."""
    graph, weights = _copied(traced.graph), []
    for i, v in enumerate(traced.graph.inputs):
        if v in set(traced.weights):
            weights.append(i)
    count = len(graph.outputs)
    _add_gradients(graph, [graph.inputs[i] for i in weights])
    return Step(tidy(graph), weights, [WHOLE] * count + weights, count)


def stage_step(joint: Joint, graph: Graph, micro_batches: int) -> Step:
    """One stage. graph: the one that was cut. Tidies the joint's graph."""
    joint.graph = tidy(joint.graph)
    place = {v: i for i, v in enumerate(joint.inputs)}
    results = set(graph.outputs)
    wants = [WHOLE if v in results else FREE for v in joint.outputs]
    wants += [FREE] * len(joint.gradients_out) + [place[v] for v in joint.weights]
    own = set(graph.inputs)
    arriving = [i for v, i in place.items() if v not in own]
    arriving += [len(place) + i for i, v in enumerate(joint.gradients_in) if v not in results]
    weights = [place[v] for v in joint.weights]
    return Step(joint.graph, weights, wants, len(joint.outputs), frozenset(arriving), micro_batches)


def tidy(graph: Graph) -> Graph:
    for step in (eliminate_dead, simplify, common_subexpressions, eliminate_dead):
        graph = step(graph)
    return graph


def _copied(graph: Graph) -> Graph:
    """A graph of the same nodes, to which others can be added."""
    made = Graph(graph.symbols, graph.name)
    made.inputs, made.nodes, made.outputs = list(graph.inputs), list(graph.nodes), list(graph.outputs)
    return made


def _add_gradients(graph: Graph, weights: list[Value]):
    _runtime.enter_trace()
    try:
        with Builder(graph):
            one = Constant(1.0, graph.outputs[0].dtype)()
            grads = [one] + [None] * (len(graph.outputs) - 1)
            found = backpropagate(list(graph.nodes), graph.outputs, grads, weights)
    finally:
        _runtime.exit_trace()
    unused = [i for i, g in enumerate(found) if g is None]
    if unused:
        shapes = ", ".join(str(tuple(weights[i].shape)) for i in unused)
        raise ValueRangeError("parallelize", f"the loss does not depend on parameters of shapes {shapes}")
    graph.outputs = [*graph.outputs, *found]


def content_of(graph: Graph, more=()) -> str:
    """A digest of what a graph computes, whatever lines it comes from."""
    number = {v: (i, j) for i, n in enumerate(graph.nodes) for j, v in enumerate(n.outputs)}
    lines = [repr(more)]
    for n in graph.nodes:
        fields = [getattr(n.op, f) for f in n.op._fields]
        lines.append(f"{n.op.name} {fields!r} {[number[v] for v in n.inputs]} {[v.type for v in n.outputs]}")
    lines.append(repr([number[v] for v in graph.outputs]))
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()
