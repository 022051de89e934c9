"""Which operators may fail while they run: by what their operands hold, not by their types and sizes."""

from __future__ import annotations

from tandem.graph.ir import Node, Value
from tandem.ops.define import Elementwise, Movement, Op
from tandem.ops.region import Region

MAY_FAIL = frozenset({
    "bincount", "check_index", "check_weights", "cholesky", "cofactor", "eig", "eigh", "inverse", "ldl_factor", "ldl_solve",
    "lstsq", "lu_factor", "lu_solve", "permutation", "pinv", "scatter", "solve_triangular", "svd",
})  # fmt: skip


def may_fail(op: Op) -> bool:
    """By what its operands hold."""
    if isinstance(op, Region):
        return any(may_fail(node.op) for graph in op.graphs() for node in graph.nodes)
    return getattr(op, "routine", None) in MAY_FAIL


def will_not_fail(node: Node) -> bool:
    """Whether a node that might fail cannot here: a scatter by indices that were checked before."""
    return node.op.name == "scatter" and all(_is_checked(index) for index in node.inputs[2:])


def _is_checked(index: Value) -> bool:
    stack, seen = [index], set()
    while stack:
        v = stack.pop()
        if v.op.name == "check_index":
            return True
        if v not in seen and isinstance(v.op, (Elementwise, Movement)):
            seen.add(v)
            stack.extend(v.node.inputs)
    return False
