"""fuse_convolutions: what follows a convolution is done while its result is in registers.

    relu(conv(x, w, b) + r)  ->  conv_fused[activation=relu](x, w, b, r)

r is a tensor of the result's shape; activations are those of `ACTIVATIONS` in ops/conv_fused.py, in the forms that operators
expand to.
For programs with constant weights (td.export.freeze): batch norm is in the weights by then, and the library packs them once
(Note [Constant weights] in src/plan/plan.h). Nothing else may read what lies between.
"""

from __future__ import annotations

from typing import NamedTuple

import tandem.ops as F
from tandem import dtypes
from tandem.graph.ir import Graph, Node, Value
from tandem.ops.arithmetic import Add
from tandem.ops.conv import ConvForward
from tandem.ops.conv_fused import ConvFused
from tandem.ops.create import Constant
from tandem.ops.movement import Expand
from tandem.passes.activations import activations
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild
from tandem.passes.rewrite import constant_of


class _Fused(NamedTuple):
    convolution: Node
    inside: set[Node]  # nodes that go away, the convolution among them
    residual: Value | None
    activation: str
    alpha: float
    beta: float


@graph_pass
def fuse_convolutions(graph: Graph) -> Graph:
    readers: dict[Value, list[Node | None]] = {}
    for node in graph.nodes:
        for v in node.inputs:
            readers.setdefault(v, []).append(node)
    for v in graph.roots():
        readers.setdefault(v, []).append(None)
    forms: dict[Value, list] = {}  # by what they are computed from
    for node in graph.nodes:
        for form in activations(node):
            forms.setdefault(form[0], []).append((node, *form[1:]))
    ends: dict[Node, _Fused] = {}
    for node in graph.nodes:
        if isinstance(node.op, ConvForward) and not node.control and node.outputs[0].dtype is dtypes.float32:
            end, found = _fused(node, readers, forms, ends)
            ends[end] = found
    gone = {n for f in ends.values() for n in f.inside}
    made: dict[Value, Value] = {}

    def visit(node: Node, inputs: tuple[Value, ...]):
        for old, new in zip(node.inputs, inputs, strict=True):
            made[old] = new
        found = ends.get(node)
        if found is None:
            return None
        conv = found.convolution
        first, weight, *bias = (made[v] for v in conv.inputs)
        if not bias:
            bias = [F.Expand((weight.shape[0],))(F.Reshape((1,))(F.Constant(0.0, dtypes.float32)()))]
        residual = [made[found.residual]] if found.residual is not None else []
        return ConvFused(*conv.op.geometry, found.activation, found.alpha, found.beta)(first, weight, *bias, *residual)

    if not gone:
        return graph
    return rebuild(graph, visit)


def _fused(conv: Node, readers, forms, ends: dict) -> tuple[Node, _Fused]:
    """The last node that goes into the convolution, and all that does."""
    value, inside, residual = conv.outputs[0], {conv}, None
    only = readers.get(value, [None])
    if (
        len(only) == 1
        and only[0] is not None
        and isinstance(only[0].op, Add)
        and value.ndim == 4
        and not only[0].control
    ):
        if any(only[0] in f.inside for f in ends.values()):  # it went into the other operand's convolution
            return conv, _Fused(conv, inside, None, "none", 0.0, 0.0)
        a, b = only[0].inputs
        other = b if a is value else a
        if a is not b and tuple(other.shape) == tuple(value.shape) and not isinstance(other.op, (Expand, Constant)):
            value, residual = only[0].outputs[0], other
            inside.add(only[0])
    for end, name, alpha, beta in reversed(forms.get(value, ())):  # the longest one first
        between = _between(end, value)
        if all(r in between for v in [value, *_made(between - {end})] for r in readers.get(v, ())):
            return end, _Fused(conv, inside | between, residual, name, alpha, beta)
    return value.node, _Fused(conv, inside, residual, "none", 0.0, 0.0)


def _between(end: Node, start: Value) -> set[Node]:
    found, stack = set(), [end]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += [v.node for v in node.inputs if v is not start and v.shape and constant_of(v) is None]
    return found


def _made(nodes: set[Node]) -> list[Value]:
    return [v for n in nodes for v in n.outputs]
