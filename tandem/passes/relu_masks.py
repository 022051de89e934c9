"""relu_masks: where backward reads what a relu was computed from, it asks that for the sign, not the result of the relu.

    0 < relu(z)  ->  0 < z            z: a few elementwise steps from one tensor that backward reads anyway

Behind a normalised convolution backward reads the convolution's result to normalise it once more. The sign of z then costs a few
instructions, where the result of the relu is another tensor to read, twice for each layer; and where nothing else needs that
tensor (before max pooling) it does not live until backward.

Both are false where z is NaN. A sign may differ where z is within a rounding error of 0, if kernels round differently.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.graph.ir import Graph, Node, Value
from tandem.graph.symbolic import hint
from tandem.ops.comparison import Less
from tandem.ops.create import Constant, Size
from tandem.ops.define import Elementwise, Movement
from tandem.ops.join import Concat
from tandem.ops.movement import Expand, Reshape
from tandem.ops.unary import Relu
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild
from tandem.passes.rewrite import constant_of

STEPS = 6  # that z may take: what code generation computes again rather than keeps (CHEAP in codegen/fuse.py)
_STEPS = {"add", "sub", "mul", "neg", "abs", "maximum", "minimum", "cast", "copy"}


@graph_pass
def relu_masks(graph: Graph) -> Graph:
    asked = [n for n in graph.nodes if isinstance(n.op, Less) and _relu(n) is not None]
    if not asked:
        return graph
    position = {node: i for i, node in enumerate(graph.nodes)}
    users: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for v in node.inputs:
            users.setdefault(v, []).append(node)
    changed = set()
    for node in asked:
        relu = _relu(node)
        source = _source(relu.node.inputs[0])
        if source is not None and _is_read_after(source, relu, node, users, position):
            changed.add(node)

    def visit(node, inputs):
        return F.Less()(inputs[0], inputs[1].node.inputs[0]) if node in changed else None

    return rebuild(graph, visit) if changed else graph


def _relu(less: Node) -> Value | None:
    zero, value = less.inputs
    waits = less.control or value.node.control
    return value if isinstance(value.op, Relu) and not waits and constant_of(zero) == 0 else None


def _source(z: Value) -> Value | None:
    """The one tensor that z is computed from in a few steps, beside what is broadcast; None if there is none or more."""
    size = _size(z)
    found, steps, stack, seen = None, 0, [z], set()
    while stack:
        v = stack.pop()
        if v in seen or 4 * _size(v) < size or isinstance(v.op, (Constant, Size)):
            continue
        seen.add(v)
        if isinstance(v.op, Elementwise) and v.op.name in _STEPS:
            steps += 1
            stack.extend(v.node.inputs)
        elif isinstance(v.op, Movement) and isinstance(v.op, (Expand, Reshape)) and v.node.inputs:
            stack.extend(v.node.inputs)
        elif found is None:
            found = v
        else:
            return None
        if steps > STEPS:
            return None
    return found if steps else None


def _is_read_after(source: Value, relu: Value, less: Node, users, position) -> bool:
    """Whether something after `less` reads source, or what is computed from it on the way, for a reason of its own."""
    at, stack, seen = position[less], [source], {relu}
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        for node in users.get(v, ()):
            if position[node] > at:
                return True
            if isinstance(node.op, Elementwise) or (isinstance(node.op, Movement) and not isinstance(node.op, Concat)):
                stack.extend(node.outputs)
    return False


def _size(value: Value) -> int:
    count = 1
    for d in value.shape:
        count *= hint(d)
    return count
