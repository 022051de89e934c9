"""Backward of two records, or of a sum of gradients, as one operator: Note [Joined records] in src/autograd/record.h."""

from __future__ import annotations

import tandem.ops as F
from tandem.graph.ir import Graph, Value
from tandem.ops.define import Backward, Elementwise, LibraryOp, ParameterSpec, Role, make_function
from tandem.tracing.compile import BACKWARD_PARAMETERS

_LEAVES = ("input", "constant", "size")
_JOINED = Role(backward=Backward())


def joined(first, second, output: int):
    """An operator that runs the backward function `first` and gives its result to `second` as the gradient of an output; None where
    that saves no pass."""
    one, two = first.role.backward, second.role.backward
    if not _is_elementwise(one) or two is None or two.graph is None or output not in two.positions:
        return None
    if not _passes_over(two.graph, two.graph.inputs[two.positions.index(output)]):
        return None

    def both(grads, saved, ints, numbers, next_saved, next_ints, next_numbers):
        incoming = [None] * two.outputs
        (incoming[output],) = one.body(_summed(grads), saved, ints, numbers)
        return two.body(incoming, next_saved, next_ints, next_numbers)

    more = [ParameterSpec(f"next_{p.name}", p.kind, True, None, False) for p in BACKWARD_PARAMETERS[1:]]
    return make_function(second.__name__, both, [*BACKWARD_PARAMETERS, *more], role=_JOINED)


def with_sum(function):
    """An operator that adds two gradients and runs a backward function on the sum; None where that saves no pass."""
    backward = function.role.backward
    if not _is_elementwise(backward):
        return None

    def of_sum(grads, saved, ints, numbers):
        return backward.body(_summed(grads), saved, ints, numbers)

    return make_function(function.__name__, of_sum, BACKWARD_PARAMETERS, role=_JOINED)


def _summed(grads) -> list:
    """The gradient of the one output: two that meet are added."""
    return [F.add(*grads)] if len(grads) == 2 else grads


def _is_elementwise(backward: Backward | None) -> bool:
    """Whether it makes one tensor, each element from those at the same place."""
    graph = backward and backward.graph
    if graph is None:
        return False
    return len(graph.outputs) == 1 and all(isinstance(n.op, Elementwise) or n.op.name in _LEAVES for n in graph.nodes)


def _passes_over(graph: Graph, gradient: Value) -> bool:
    """Whether kernels of ours read a gradient that comes in, not library calls alone."""
    return any(gradient in node.inputs and not isinstance(node.op, LibraryOp) for node in graph.nodes)
