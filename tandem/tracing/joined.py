"""Backward of two records as one operator: Note [Joined records] in src/autograd/record.h."""

from __future__ import annotations

from tandem.graph.ir import Graph
from tandem.ops.define import Elementwise, LibraryOp, ParameterSpec, make_function
from tandem.tracing.compile import BACKWARD_PARAMETERS

_LEAVES = ("input", "constant", "size")


def joined(first, second):
    """An operator that runs the backward function `first` and gives its result to `second`; None where that saves no pass."""
    one, two = (getattr(f, "backward_graph", None) for f in (first, second))
    if one is None or two is None or not _is_elementwise(one) or not _passes_over_gradient(two):
        return None
    of_first, of_second = first.backward_body, second.backward_body

    def both(grads, saved, ints, numbers, next_saved, next_ints, next_numbers):
        return of_second(of_first(grads, saved, ints, numbers), next_saved, next_ints, next_numbers)

    more = [ParameterSpec(f"next_{p.name}", p.kind, True, None, False) for p in BACKWARD_PARAMETERS[1:]]
    function = make_function(second.__name__, both, [*BACKWARD_PARAMETERS, *more])
    function.is_backward = True
    return function


def _is_elementwise(graph: Graph) -> bool:
    """Whether it makes one tensor, each element from those at the same place."""
    return len(graph.outputs) == 1 and all(isinstance(n.op, Elementwise) or n.op.name in _LEAVES for n in graph.nodes)


def _passes_over_gradient(graph: Graph) -> bool:
    """Whether kernels of ours read the gradient that comes in, not library calls alone."""
    gradient = graph.inputs[0]
    return any(gradient in node.inputs and not isinstance(node.op, LibraryOp) for node in graph.nodes)
