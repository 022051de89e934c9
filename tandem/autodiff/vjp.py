"""Gradients of a function of values while a graph is being built."""

from __future__ import annotations

from tandem.autodiff.reverse import backpropagate
from tandem.graph.ir import Node, Value


def vjp(fn, inputs: list[Value], grads: list[Value | None]) -> list[Value | None]:
    """Gradients of fn's inputs, given those of its outputs: for operators whose gradient is easiest said as that of a formula."""
    outputs = fn(*inputs)
    outputs = [outputs] if isinstance(outputs, Value) else list(outputs)
    return backpropagate(_between(inputs, outputs), outputs, grads, list(inputs))


def _between(inputs: list[Value], outputs: list[Value]) -> list[Node]:
    """Nodes that outputs need, back to the inputs, in topological order."""
    ends = set(inputs)
    found: set[Node] = set()
    stack = list(outputs)
    while stack:
        value = stack.pop()
        if value in ends or value.node in found:
            continue
        found.add(value.node)
        stack.extend(value.node.inputs)
    return sorted(found, key=lambda node: node.id)
