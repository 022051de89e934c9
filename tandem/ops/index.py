"""Reading and writing at computed positions."""

from __future__ import annotations

from tandem.graph.ir import Type
from tandem.ops.define import LibraryOp, Op, register


@register
class CheckIndex(LibraryOp):
    """Passes the index tensor on after checking -bound <= index < bound; raises an error that names value, axis and bound."""

    name = "check_index"
    routine = "check_index"
    bound: object  # Dim
    axis: int

    def infer(self, index: Type) -> Type:
        return index

    def attributes(self, index):
        return (self.bound, 1, self.axis), ()


@register
class Gather(Op):
    """x at positions: the index tensors, all of one shape I and already in range, address the leading axes of x.

    x: (n1..nk, *rest), k index tensors (*I) -> (*I, *rest)
    """

    name = "gather"

    def infer(self, x: Type, *indices: Type) -> Type:
        return x.with_shape(indices[0].shape + x.shape[len(indices):])

    def grad(self, g, x, *indices):
        import tandem.ops as F

        return (Scatter("add")(F.full(x.shape, 0, dtype=x.dtype), g, *indices), *(None for _ in indices))


@register
class Scatter(LibraryOp):
    """base with updates written (set, add, max, min, mul) at the positions that index tensors give on its leading axes.

    base: (n1..nk, *rest), updates: (*I, *rest), k index tensors (*I) -> shape of base. Repeated positions: the last update
    wins for "set"; "add" adds in index order, so results do not depend on the number of threads.
    """

    name = "scatter"
    routine = "scatter"
    mode: str

    def infer(self, base: Type, updates: Type, *indices: Type) -> Type:
        return base

    def attributes(self, base, updates, *indices):
        return (len(indices), ("set", "add", "max", "min", "mul").index(self.mode)), ()
