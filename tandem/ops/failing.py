"""Which operators may fail while they run: by what their operands hold, not by their types and sizes."""

from __future__ import annotations

from tandem.graph.ir import Node, Value
from tandem.graph.symbolic import hint
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


def will_not_fail(node: Node, checked: set[tuple[Value, int]]) -> bool:
    """Whether a node that might fail cannot here: a scatter by indices that the program checks.

    checked: (tensor, bound) for every check of the graph; see `checks_of`.
    """
    if node.op.name != "scatter":
        return False
    sizes = node.inputs[0].shape
    return all(_is_checked(v, hint(sizes[axis]), checked) for axis, v in enumerate(node.inputs[2:]))


def checks_of(nodes) -> set[tuple[Value, int]]:
    return {(v, hint(n.op.bound)) for n in nodes if n.op.name == "check_index" for v in (*n.inputs, *n.outputs)}


def _is_checked(index: Value, bound: int, checked: set[tuple[Value, int]]) -> bool:
    """Whether it is made of a tensor that is checked: wrapped around, converted, rearranged."""
    stack, seen = [index], set()
    while stack:
        v = stack.pop()
        if (v, bound) in checked:
            return True
        if v not in seen and isinstance(v.op, (Elementwise, Movement)):
            seen.add(v)
            stack.extend(v.node.inputs)
    return False
