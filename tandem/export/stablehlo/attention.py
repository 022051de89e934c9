"""Library primitives that are written by their formulas."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime
from tandem.export.stablehlo.writer import writes
from tandem.graph.ir import Builder, Graph
from tandem.ops.define import add_input


def by_formula(w, node, operands, formula) -> tuple[str, ...]:
    """What formula(*values) builds with operators, in place of the node."""
    graph = Graph(None, node.op.name)
    _runtime.enter_trace()
    try:
        with Builder(graph) as builder:
            inputs = [add_input(builder, v.type) for v in node.inputs]
            made = formula(*inputs)
    finally:
        _runtime.exit_trace()
    graph.inputs = inputs
    graph.outputs = list(made) if isinstance(made, (tuple, list)) else [made]
    return w.inline(graph, operands)


@writes("attention")
def attention(w, node, *operands):
    def formula(q, k, v, *mask):
        weights = node.op._probabilities(q, k, mask)
        return F.matmul(weights, v)

    if getattr(w, "used", None) is not None and node.outputs[1] in w.used:
        w.refuse(node, "the sums that only gradients use")
    return (*by_formula(w, node, operands, formula), "")


@writes("pool_adaptive_avg")
def adaptive_average(w, node, *operands):
    given, size = node.inputs[0], node.op.size

    def formula(x):
        for axis, (n, m) in enumerate(zip(given.shape[2:], size, strict=True), 2):
            bounds = [(j * n // m, -(-(j + 1) * n // m)) for j in range(m)]
            parts = [F.mean(F.narrow(x, axis, a, b - a), axis=axis, keepdims=True) for a, b in bounds]
            x = parts[0] if m == 1 else F.concat(parts, axis=axis)
        return x

    return by_formula(w, node, operands, formula)
