"""Backward of two records, or of a sum of gradients, as one operator: Note [Joined records] in src/autograd/record.h."""

from __future__ import annotations

from tandem.graph.ir import Graph, Value
from tandem.ops.define import Elementwise, LibraryOp, ParameterSpec, make_function
from tandem.tracing.compile import BACKWARD_PARAMETERS

_LEAVES = ("input", "constant", "size")


def joined(first, second, output: int):
    """An operator that runs the backward function `first` and gives its result to `second` as the gradient of an output; None where
    that saves no pass."""
    one, two = (getattr(f, "backward_graph", None) for f in (first, second))
    if one is None or two is None or not _is_elementwise(one) or output not in second.backward_positions:
        return None
    if not _passes_over(two, two.inputs[second.backward_positions.index(output)]):
        return None
    of_first, of_second, outputs = first.backward_body, second.backward_body, second.backward_outputs

    def both(grads, saved, ints, numbers, next_saved, next_ints, next_numbers):
        incoming = [None] * outputs
        (incoming[output],) = of_first(_summed(grads), saved, ints, numbers)
        return of_second(incoming, next_saved, next_ints, next_numbers)

    more = [ParameterSpec(f"next_{p.name}", p.kind, True, None, False) for p in BACKWARD_PARAMETERS[1:]]
    return _backward(second.__name__, both, [*BACKWARD_PARAMETERS, *more])


def with_sum(function):
    """An operator that adds two gradients and runs a backward function on the sum; None where that saves no pass."""
    graph = getattr(function, "backward_graph", None)
    if graph is None or not _is_elementwise(graph):
        return None
    body = function.backward_body

    def of_sum(grads, saved, ints, numbers):
        return body(_summed(grads), saved, ints, numbers)

    return _backward(function.__name__, of_sum, BACKWARD_PARAMETERS)


def _summed(grads) -> list:
    """The gradient of the one output: two that meet are added."""
    import tandem.ops as F

    return [F.add(*grads)] if len(grads) == 2 else grads


def _backward(name: str, body, parameters):
    function = make_function(name, body, parameters)
    function.is_backward = True
    return function


def _is_elementwise(graph: Graph) -> bool:
    """Whether it makes one tensor, each element from those at the same place."""
    return len(graph.outputs) == 1 and all(isinstance(n.op, Elementwise) or n.op.name in _LEAVES for n in graph.nodes)


def _passes_over(graph: Graph, gradient: Value) -> bool:
    """Whether kernels of ours read a gradient that comes in, not library calls alone."""
    return any(gradient in node.inputs and not isinstance(node.op, LibraryOp) for node in graph.nodes)
