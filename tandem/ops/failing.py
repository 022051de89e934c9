"""Which operators may fail while they run: by what their operands hold, not by their types and sizes."""

from __future__ import annotations

from tandem.graph.ir import Node, Value
from tandem.graph.symbolic import Dim
from tandem.ops.define import Elementwise, LibraryOp, Movement, Op
from tandem.ops.index import Scatter
from tandem.ops.region import Region


def may_fail(op: Op) -> bool:
    """By what its operands hold."""
    if isinstance(op, Region):
        return any(may_fail(node.op) for graph in op.graphs() for node in graph.nodes)
    return isinstance(op, LibraryOp) and op.may_fail


def will_not_fail(node: Node, checked: set[tuple]) -> bool:
    """Whether a node that might fail cannot here: a scatter by indices that the program checks (`checks_of`)."""
    if not isinstance(node.op, Scatter):
        return False
    sizes = node.inputs[0].shape
    return all(_is_checked(v, _known(sizes[axis]), checked) for axis, v in enumerate(node.inputs[2:]))


def checks_of(nodes) -> set[tuple]:
    """(tensor, what its elements are known to be below) for every check among the nodes."""
    return {(v, _known(n.op.bound)) for n in nodes if n.op.name == "check_index" for v in (*n.inputs, *n.outputs)}


def _known(size: Dim):
    """Something that is equal for sizes that are always equal, not for those that were in one call."""
    return size if type(size) is int else ("size", id(size))  # equal expressions are one object


def _is_checked(index: Value, bound, checked: set[tuple]) -> bool:
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
