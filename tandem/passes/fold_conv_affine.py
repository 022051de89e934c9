"""fold_conv_affine: scaling and shifting the channels of a convolution's result goes into its weights and bias.

    conv(x, w, b) * s + t  ->  conv(x, w * s, b * s + t)         s, t: one number for each output channel, or for all

This is batch normalisation when a model is used rather than trained: mean, deviation, scale and shift are then inputs, and the
result of the convolution is needed for nothing else. (While training, backward needs it, and the mean is computed from it.)

Where something elementwise follows, such as relu, one kernel does it all and is busy with memory: folding saves it nothing, and
scaling the weights, which are inputs that may change between runs, is work of its own. A whole ResNet-50 forward pass took 1.02 of
its time with every normalisation folded (two cores of Zen 3). So this happens only where the result is read as it is, by the next
convolution or the caller: there a kernel that reads and writes everything goes away. And only with fewer weights than results.

Products round differently: results agree to the accuracy of the type, for factors that are finite. A quotient stays as it is: a
division by zero gives infinities, and the reciprocal in the weights would make NaN of them. TANDEM_SKIP=fold_conv_affine leaves
all of them apart.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.graph.ir import Graph, Node, Value
from tandem.graph.symbolic import hint
from tandem.ops.arithmetic import Mul
from tandem.ops.conv import ConvForward
from tandem.ops.define import Elementwise
from tandem.ops.movement import Expand, Reshape
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild, use_counts
from tandem.passes.simplify import same

_STEPS = ("add", "sub", "mul")


@graph_pass
def fold_conv_affine(graph: Graph) -> Graph:
    return fold_affine(graph)


def fold_affine(graph: Graph, constant_weights: bool = False) -> Graph:
    """constant_weights: whether weights never change, so that scaling them costs nothing: then every chain is folded."""
    ends = _chains(graph, constant_weights)
    if not ends:
        return graph
    kept: dict[Node, list[Value]] = {}
    inside = {n for chain in ends.values() for n in chain}

    def visit(node, inputs):
        if node in inside or node in ends:
            kept[node] = list(inputs)
            if node in inside:
                return None
            return _folded([(n, kept[n]) for n in (*ends[node], node)])
        return None

    return rebuild(graph, visit)


def _chains(graph: Graph, everywhere: bool) -> dict[Node, list[Node]]:
    """Per last node of a chain, the nodes before it, from the convolution on."""
    uses = use_counts(graph)
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for v in node.inputs:
            readers.setdefault(v, []).append(node)
    found: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if not isinstance(node.op, ConvForward) or node.control:
            continue
        chain, value = [node], node.outputs[0]
        scaled = False
        while uses.get(value) == 1 and value in readers:
            user = readers[value][0]
            if user.op.name not in _STEPS or user.control or _operand(user, value) is None:
                break
            scaled = scaled or isinstance(user.op, Mul)
            chain.append(user)
            value = user.outputs[0]
        followed = any(isinstance(n.op, (Elementwise, F.Reduce)) for n in readers.get(value, ()))
        pays = not followed and (not scaled or _count(node.inputs[1]) <= _count(node.outputs[0]))
        if len(chain) > 1 and (everywhere or pays):
            found[chain[-1]] = chain[:-1]
    return found


def _operand(node: Node, value: Value) -> Value | None:
    """What `node` does to the convolution's result `value`, as per_channel gives it; None if it is something else."""
    a, b = node.inputs
    if a is b:
        return None
    other = b if a is value else a
    return per_channel(other)


def per_channel(value: Value) -> Value | None:
    """What `value`, (N, C, ...), spreads over batch and positions: C numbers on the only axis or on axis 1, or one number."""
    if not value.shape:
        return value
    if not isinstance(value.op, Expand):
        return None
    source = value.node.inputs[0]
    if any(not isinstance(n, int) or n != 1 for axis, n in enumerate(source.shape) if axis != 1) or source.ndim < 2:
        return None
    if isinstance(source.op, Reshape):
        inner = source.node.inputs[0]
        if inner.ndim == 1 and same(inner.shape[0], source.shape[1]):
            return inner
    return source


def _count(value: Value) -> int:
    total = 1
    for d in value.shape:
        total *= hint(d)
    return total


def _folded(chain: list[tuple[Node, list[Value]]]) -> Value:
    (conv, (x, weight, *bias)), *steps = chain
    channels = weight.shape[0]

    def vector(v: Value) -> Value:
        size = 1 if v.ndim == 0 else v.shape[0 if v.ndim == 1 else 1]
        flat = v if v.ndim == 1 else F.Reshape((size,))(v)
        return flat if same(size, channels) else F.Expand((channels,))(flat)

    scale = None
    shift = bias[0] if bias else None
    value = conv.outputs[0]
    for node, inputs in steps:
        other = vector(per_channel(inputs[1] if node.inputs[0] is value else inputs[0]))
        name, reversed_ = node.op.name, node.inputs[0] is not value
        if name == "sub" and reversed_:  # other - y
            scale = F.Neg()(scale) if scale is not None else vector(F.Constant(-1.0, weight.dtype)())
            shift = other if shift is None else F.Sub()(other, shift)
        elif name in ("add", "sub"):
            if shift is None:
                shift = other if name == "add" else F.Neg()(other)
            else:
                shift = (F.Add() if name == "add" else F.Sub())(shift, other)
        else:
            scale = other if scale is None else F.Mul()(scale, other)
            shift = None if shift is None else F.Mul()(shift, other)
        value = node.outputs[0]
    if scale is not None:
        spread = F.Reshape((channels, *(1 for _ in weight.shape[1:])))(scale)
        weight = F.Mul()(weight, F.Expand(weight.shape)(spread))
    return conv.op(x, weight, *([shift] if shift is not None else []))
