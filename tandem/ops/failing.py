"""Which operators may fail while they run: by what their operands hold, not by their types and sizes."""

from __future__ import annotations

from tandem.ops.define import Op
from tandem.ops.region import Region

MAY_FAIL = frozenset({
    "bincount", "check_index", "cholesky", "cofactor", "eig", "eigh", "inverse", "ldl_factor", "ldl_solve", "lstsq", "lu_factor",
    "lu_solve", "permutation", "pinv", "scatter", "solve_triangular", "svd",
})  # fmt: skip


def may_fail(op: Op) -> bool:
    if isinstance(op, Region):
        return any(may_fail(node.op) for graph in op.graphs() for node in graph.nodes)
    return getattr(op, "routine", None) in MAY_FAIL
