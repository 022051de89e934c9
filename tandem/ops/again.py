"""again: a value as it is, from here on. What is computed from it is recomputed rather than kept from before."""

from __future__ import annotations

from tandem.graph.ir import Type
from tandem.ops.define import LibraryOp, op, register


@register
class Again(LibraryOp):
    """The same value in the same memory, not earlier than this node's place in the graph.

    No two are equal as long as their numbers differ, so what is built on one is not merged with what was computed before. This is
    how intermediate results are computed a second time instead of being kept (codegen/recompute.py, td.checkpoint).
    """

    name = "again"
    batching = "leading"
    number: int = 0
    takes = "?[*s]"

    def infer(self, x: Type) -> Type:
        return x

    def grad(self, g, x):
        return g


@op(internal=True)
def again(x: Tensor, number: int = 0):
    """x itself; in a compiled function, what is computed from the result is not merged with what was computed from x."""
    return Again(number)(x)
