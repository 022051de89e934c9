"""Graphs rewritten for the sake of memory traffic: masks of ReLUs, and the order of casts and reshapes.

Which elements a ReLU let through is computed again from what backward reads anyway. Backward of relu(normalised x) needs to know
where the result was positive, and it needs x for the gradient of the normalisation. Asking x instead of the result saves reading
the result: 0 < relu(v) is 0 < v, and v is a few products away from x.
"""

from __future__ import annotations

from tandem.codegen.computes import operator_cost
from tandem.graph.ir import Graph, Node, Value
from tandem.graph.symbolic import hint
from tandem.ops.arithmetic import Cast
from tandem.ops.comparison import Less
from tandem.ops.create import Constant
from tandem.ops.define import Elementwise, Input, LibraryOp
from tandem.ops.movement import Reshape
from tandem.ops.unary import Relu


def casts(lowering) -> dict[Node, object]:
    """Casts of reshaped values, made before the reshape: there they are part of the kernel that computes the value."""
    graph = lowering.graph
    uses: dict[Value, int] = {}
    for node in graph.nodes:
        for v in node.inputs:
            uses[v] = uses.get(v, 0) + 1
    found = {}
    for node in graph.nodes:
        if isinstance(node.op, Cast) and isinstance(node.inputs[0].op, Reshape) and uses[node.inputs[0]] == 1:
            source = node.inputs[0].node.inputs[0]
            if isinstance(source.op, Elementwise) and source.type.shape:
                found[node] = _before_reshape
    return found


def _before_reshape(op: Cast, x: Value) -> Value:
    return x.op(op(x.node.inputs[0]))


def masks(lowering) -> dict[Node, object]:
    """The comparisons that are better made before the ReLU, each with a formula for it."""
    graph = lowering.graph
    candidates = [node for node in graph.nodes if _asks_relu(node)]
    if not candidates:
        return {}
    users = _Users(graph)
    found = {}
    for node in candidates:
        leaf = _only_large_leaf(node.inputs[1].node.inputs[0], lowering.target.costs.cheap)
        if leaf is not None and users.needed_after(leaf, node):
            found[node] = _before_relu
    return found


def _asks_relu(node: Node) -> bool:
    if not isinstance(node.op, Less):
        return False
    zero, x = node.inputs
    return isinstance(zero.op, Constant) and zero.op.value == 0 and isinstance(x.op, Relu)


def _before_relu(op, zero: Value, x: Value) -> Value:
    return op(zero, x.node.inputs[0])


def _size(value: Value) -> int:
    size = 1
    for d in value.type.shape:
        size *= hint(d)
    return size


def _only_large_leaf(value: Value, cheap: float) -> Value | None:
    """The one large tensor in memory that value is made of, if it is one and computing value again is cheap."""
    size, cost = _size(value), 0.0
    leaves, stack, seen = set(), [value], set()
    while stack:
        v = stack.pop()
        if v in seen or 4 * _size(v) < size:  # what is small stays in cache
            continue
        seen.add(v)
        if isinstance(v.op, Elementwise):
            cost += operator_cost(v.node)
            stack.extend(v.node.inputs)
        elif isinstance(v.op, (Input, LibraryOp)):
            leaves.add(v)
        elif v.node.inputs and all(4 * _size(x) < size for x in v.node.inputs):
            continue  # spread from something small
        else:
            return None
        if cost > cheap or len(leaves) > 1:
            return None
    return leaves.pop() if leaves else None


class _Users:
    """Who uses what, and where in the graph."""

    def __init__(self, graph: Graph):
        self.position = {node: i for i, node in enumerate(graph.nodes)}
        self.users: dict[Value, list[Node]] = {}
        self.in_memory = set(graph.outputs) | {v for _, v in graph.mutations}
        for node in graph.nodes:
            for v in node.inputs:
                self.users.setdefault(v, []).append(node)
                if isinstance(node.op, LibraryOp):
                    self.in_memory.add(v)

    def needed_after(self, value: Value, node: Node) -> bool:
        """Whether value, or something computed from it without going through memory, is used behind node."""
        stack, seen = [value], set()
        while stack:
            v = stack.pop()
            if v in seen or (v is not value and v in self.in_memory):
                continue
            seen.add(v)
            for user in self.users.get(v, ()):
                if self.position[user] > self.position[node]:
                    return True
                if isinstance(user.op, Elementwise):
                    stack.extend(user.outputs)
        return False
