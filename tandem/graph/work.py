"""What a node costs, roughly: operations and bytes, from its shapes."""

from __future__ import annotations

import math

from tandem.graph.ir import Graph, Node, Value
from tandem.graph.symbolic import hint

OPERATIONS_PER_BYTE = 8.0  # of a processor that is as busy with one as with the other


def size_of(value: Value) -> int:
    """Bytes."""
    return value.dtype.itemsize * _count(value)


def work_of(node: Node) -> float:
    """Operations, with bytes as operations that take as long."""
    if node.op.rearranges or not node.inputs:
        return 0.0
    moved = sum(map(size_of, node.outputs)) + sum(map(size_of, node.inputs))
    return moved * OPERATIONS_PER_BYTE / 4 + operations_of(node)


def traffic_of(graph: Graph) -> dict[Node, float]:
    """Bytes that each node reads and writes in memory. What passes between fused operators is not there."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for v in node.inputs:
            readers.setdefault(v, []).append(node)
    results = set(graph.outputs)

    def there(v: Value) -> bool:
        if not v.node.inputs and not v.node.op.is_input:
            return False  # constants
        return v.node.op.is_input or not v.node.op.fuses or v in results or any(
            not n.op.fuses for n in readers.get(v, ())
        )  # fmt: skip

    def moved(node: Node) -> float:
        if node.op.rearranges or not node.inputs:
            return 0.0  # a view, or part of what reads it
        return float(sum(size_of(v) for v in {*map(_root, node.inputs), *node.outputs} if there(v)))

    return {node: moved(node) for node in graph.nodes}


def _root(v: Value) -> Value:
    """What a value is a rearrangement of."""
    while v.node.op.rearranges and v.node.inputs:
        v = v.node.inputs[0]
    return v


def operations_of(node: Node) -> float:
    """Operations of a node, as its operator counts them."""
    if node.op.rearranges or not node.inputs:
        return 0.0
    inputs, outputs = ([tuple(map(hint, v.shape)) for v in values] for values in (node.inputs, node.outputs))
    return float(node.op.operations(inputs, outputs))


def _count(value: Value) -> int:
    return math.prod(hint(d) for d in value.shape)
