"""What a node costs, roughly: operations and bytes, from its shapes."""

from __future__ import annotations

import math

from tandem.graph.ir import Graph, Node, Value
from tandem.graph.symbolic import hint
from tandem.ops.define import Elementwise, Movement

OPERATIONS_PER_BYTE = 8.0  # of a processor that is as busy with one as with the other


def size_of(value: Value) -> int:
    """Bytes."""
    return value.dtype.itemsize * _count(value)


def work_of(node: Node) -> float:
    """Operations, with bytes as operations that take as long."""
    if isinstance(node.op, Movement) or not node.inputs:
        return 0.0
    moved = sum(map(size_of, node.outputs)) + sum(map(size_of, node.inputs))
    return moved * OPERATIONS_PER_BYTE / 4 + operations_of(node)


def fuses(op) -> bool:
    """Whether an operator becomes part of a kernel with its neighbours, so that what is between them is never in memory."""
    return isinstance(op, (Elementwise, Movement)) or op.name in ("reduce", "constant", "iota", "input", "check_index")


def traffic_of(graph: Graph) -> dict[Node, float]:
    """Bytes that each node reads and writes in memory. What passes between fused operators is not there."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for v in node.inputs:
            readers.setdefault(v, []).append(node)
    results = set(graph.outputs)

    def there(v: Value) -> bool:
        if not v.node.inputs and v.node.op.name != "input":
            return False  # constants
        return v.node.op.name == "input" or not fuses(v.node.op) or v in results or any(
            not fuses(n.op) for n in readers.get(v, ())
        )  # fmt: skip

    def moved(node: Node) -> float:
        if isinstance(node.op, Movement) or not node.inputs:
            return 0.0  # a view, or part of what reads it
        return float(sum(size_of(v) for v in {*map(_root, node.inputs), *node.outputs} if there(v)))

    return {node: moved(node) for node in graph.nodes}


def _root(v: Value) -> Value:
    """What a value is a rearrangement of."""
    while isinstance(v.node.op, Movement) and v.node.inputs:
        v = v.node.inputs[0]
    return v


def operations_of(node: Node) -> float:
    """Operations of a node: two for each product that is added up, one for each element of what is made otherwise."""
    if isinstance(node.op, Movement) or not node.inputs:
        return 0.0
    out = _count(node.outputs[0])
    match node.op.name:
        case "matmul":
            return 2.0 * out * hint(node.inputs[0].shape[-1])
        case "linear":
            return 2.0 * out * hint(node.inputs[0].shape[-1])
        case "conv_forward":
            return 2.0 * out * math.prod(hint(d) for d in node.inputs[1].shape[1:])
        case "conv_backward_data" | "conv_backward_weight":  # as forward, whose products they take in another order
            weight = node.inputs[1] if node.op.name == "conv_backward_data" else node.outputs[0]
            gradient = node.inputs[0] if node.op.name == "conv_backward_data" else node.inputs[1]
            return 2.0 * _count(gradient) * math.prod(hint(d) for d in weight.shape[1:])
        case "attention":
            return 4.0 * out * hint(node.inputs[1].shape[-2])
    return float(out)


def _count(value: Value) -> int:
    return math.prod(hint(d) for d in value.shape)
