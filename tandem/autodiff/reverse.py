"""Reverse mode: gradients as more nodes in the graph being built."""

from __future__ import annotations

import tandem.ops as F
from tandem.graph.ir import Node, Value


def backpropagate(nodes: list[Node], outputs: list[Value], grads: list[Value | None], inputs: list[Value]) -> list[Value | None]:
    """Gradients of the inputs, given those of the outputs. `nodes` are the forward nodes in topological order."""
    depends = _depends_on(nodes, inputs)
    total: dict[Value, Value] = {}
    for output, g in zip(outputs, grads, strict=True):
        if g is not None and output in depends:
            _accumulate(total, output, g)
    for node in reversed(nodes):
        if not any(v in total for v in node.outputs) or not any(v in depends for v in node.inputs):
            continue
        received = [total.get(v) for v in node.outputs]
        if len(node.outputs) == 1:
            g = received[0]
        else:
            g = tuple(r if r is not None else F.zeros_like(v) for r, v in zip(received, node.outputs, strict=True))
        keywords = {}
        if node.op._grad_takes_out:
            keywords["out"] = node.outputs[0] if len(node.outputs) == 1 else node.outputs
        results = node.op.grad(g, *node.inputs, **keywords)
        if not isinstance(results, (tuple, list)):
            results = (results,) + (None,) * (len(node.inputs) - 1)
        for value, result in zip(node.inputs, results, strict=True):
            if result is None or value not in depends:
                continue
            if value.ndim == 0 and result.ndim > 0:  # a 0-d operand of an elementwise operator was used at every index
                result = F.Reshape(())(F.Reduce("sum", tuple(range(result.ndim)))(result))
            if result.dtype is not value.dtype:
                result = F.Cast(value.dtype)(result)
            _accumulate(total, value, result)
    return [total.get(v) for v in inputs]


def _accumulate(total: dict, value: Value, g: Value):
    total[value] = g if value not in total else F.add(total[value], g)


def _depends_on(nodes: list[Node], inputs: list[Value]) -> set[Value]:
    """Differentiable values that depend on the inputs."""
    found = set(inputs)
    for node in nodes:
        if any(v in found for v in node.inputs):
            found.update(v for v in node.outputs if v.dtype.is_inexact)
    return found
