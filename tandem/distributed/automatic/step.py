"""A training step as one graph of whole tensors: the loss, and the gradients of all weights."""

from __future__ import annotations

import dataclasses

from tandem import _runtime
from tandem.autodiff.reverse import backpropagate
from tandem.constructors import asarray
from tandem.control.body import RANDOM, spec, take_down
from tandem.errors import ShapeError, UnsupportedError, ValueRangeError
from tandem.export.trace import graph_of
from tandem.graph.ir import Builder, Graph, Value
from tandem.ops.create import Constant
from tandem.passes.common_subexpressions import common_subexpressions
from tandem.passes.eliminate_dead import eliminate_dead
from tandem.passes.simplify import simplify


@dataclasses.dataclass
class Step:
    """graph: inputs are arguments, weights and other tensors, and numbers of random streams; outputs are the loss and gradients."""

    graph: Graph
    arguments: int
    tensors: list  # for the inputs after the arguments
    weights: list[int]  # positions of inputs whose gradients are outputs 1, 2, ...
    random: list[tuple[str, int]]  # kind and offset of each of the last inputs
    draws: int


def trace_step(fn, args) -> Step:
    """fn(*args) -> loss, as a step. It runs once, on tensors without values."""
    tensors = [asarray(a) for a in args]
    generator = _runtime.default_generator()
    state = generator.get_state()
    try:
        taken = take_down("parallelize", fn, [spec(t, False) for t in tensors]).taken
    finally:
        generator.set_state(state)
    graph = graph_of(taken, [(t.dtype, t.shape) for t in tensors], [()] * len(tensors), gradients=True, random=True)
    loss = graph.outputs[0]
    if len(graph.outputs) != 1 or loss.shape or not loss.dtype.is_inexact:
        found = ", ".join(repr(v.type) for v in graph.outputs)
        raise ShapeError("parallelize", f"the function gives {found}; it must give the loss, one number")
    if graph.mutations:
        raise UnsupportedError("parallelize", "the function writes into tensors (running statistics, caches)")
    count = len(tensors)
    weights = [count + i for i, t in enumerate(taken.consts) if t.requires_grad]
    if not weights:
        raise ValueRangeError("parallelize", "no parameter that requires a gradient takes part in the loss")
    _add_gradients(graph, [graph.inputs[i] for i in weights])
    for step in (eliminate_dead, simplify, common_subexpressions, eliminate_dead):
        graph = step(graph)
    first = next((value for kind, value in taken.numbers if kind == "offset"), 0)
    random = [(kind, value - first) for kind, value in taken.numbers if kind in RANDOM]
    return Step(graph, count, list(taken.consts), weights, random, taken.draws)


def _add_gradients(graph: Graph, weights: list[Value]):
    _runtime.enter_trace()
    try:
        with Builder(graph):
            one = Constant(1.0, graph.outputs[0].dtype)()
            found = backpropagate(list(graph.nodes), graph.outputs, [one], weights)
    finally:
        _runtime.exit_trace()
    unused = [i for i, g in enumerate(found) if g is None]
    if unused:
        shapes = ", ".join(str(tuple(weights[i].shape)) for i in unused)
        raise ValueRangeError("parallelize", f"the loss does not depend on parameters of shapes {shapes}")
    graph.outputs = [*graph.outputs, *found]
