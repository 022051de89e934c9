"""channels_last: networks of convolutions keep the channels of a position together in memory, from the first image to the last.

    conv(x, w) -> ...   becomes   conv(arrange[order=(0, 2, 3, 1)](x), w) -> ...

Convolutions, pooling and elementwise kernels give their results in the layout of what they get, so that arranging what comes into
the network once arranges all of it. oneDNN then works on memory as it lies, where with channels first it brings every image into a
layout of its own and the result back. Convolutions of 1 x 1 and those of 3 x 3 over many channels are our own, as fast either way.

So this pays where oneDNN does much of the work, and costs where images come in or leave. `_gain` weighs that up, by bytes moved and
operations; where little is to be won nothing changes. Measured on one core of Zen 3 (processor time, with : without):

    depthwise 3 x 3                 0.63      AlexNet         0.94
    3 x 3, 12 channels              0.79      MobileNet-v2    0.96
    7 x 7, 48 channels              0.89      LeNet           0.99
    5 x 5, 32 channels              0.97      ResNet-50       1.01   (left alone)

Programs with constant weights (fuse_convolutions) have channels last always: there oneDNN does all of the work.

Only for programs without gradients: backward passes read what forward ones left, and gained nothing when all was measured. Sums
are added up in another order: results agree to the accuracy of the type. TANDEM_SKIP=channels_last leaves images as they are.
"""

from __future__ import annotations

import math

from tandem import dtypes
from tandem.graph.ir import Graph, Node, Value, current_builder
from tandem.graph.symbolic import hint
from tandem.ops.conv import ConvBackwardData, ConvBackwardWeight, ConvForward
from tandem.ops.conv_fused import ConvFused
from tandem.ops.define import Elementwise
from tandem.ops.join import Concat
from tandem.ops.memory_format import Arrange
from tandem.ops.movement import Embed, Expand, Permute, Reshape, Slice
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild

_ORDER, _BACK, _ROWS = (0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 2, 3)
_POOLS = ("pool_max", "pool_max_values", "pool_avg", "pool_adaptive_max", "pool_adaptive_avg")

# Nanoseconds on one core: an operation of a convolution, and a byte of an image that is copied into another layout.
_OPERATION, _BYTE = 1 / 80, 1 / 5
_QUICKER = 0.05  # part of oneDNN's time that is saved besides the copies
_WORTHWHILE = 0.02  # part of the time of all convolutions


def is_for(layouts) -> bool:
    """Whether images may be rearranged in a program whose inputs lie so: not where the user has done it already."""
    return not any(layout is not None and layout.dense_order == _ORDER for layout in layouts)


@graph_pass
def channels_last(graph: Graph) -> Graph:
    if _gain(graph) <= 0:
        return graph
    arranged: dict[Value, Value] = {}
    last: set[Value] = set()
    parts: set[Value] = set()  # slices of those: they lie so too, with room between

    def arrange(x: Value) -> Value:
        if x in last:
            return x
        if x not in arranged:
            arranged[x] = Arrange(_ORDER)(x)
        return arranged[x]

    def enough_lies_so(values: tuple[Value, ...]) -> bool:
        """Whether much of what is joined lies with channels last: the others are cheaper to arrange than the result."""
        so = sum(_bytes(v) for v in values if v in last or v in parts)
        return all(v.dtype is dtypes.float32 for v in values) and so > 0 and 4 * so >= sum(_bytes(v) for v in values)

    moved_again = {v for node in graph.nodes if isinstance(node.op, (Permute, Reshape, Expand)) for v in node.inputs}

    def is_flat(node: Node) -> bool:
        """Whether a reshape joins positions, or these and channels, and nobody turns that round again: tokens of an image do."""
        x, y = node.inputs[0], node.outputs[0]
        joins = tuple(y.shape[:-1]) == tuple(x.shape[: y.ndim - 1]) and 2 <= y.ndim <= 3
        return joins and y not in moved_again and min(_count(x.shape[2:]), _count(x.shape[1:2])) > 1

    def visit(node: Node, inputs: tuple[Value, ...]):
        if _is_convolution(node):
            x = arrange(inputs[0])
            made = node.op(x, *inputs[1:3], *(arrange(r) for r in inputs[3:]))
            last.add(made)
            return made
        if isinstance(node.op, Slice) and (inputs[0] in last or inputs[0] in parts):
            made = node.op(*inputs)
            parts.add(made)
            return made
        if isinstance(node.op, Concat) and node.outputs[0].ndim == 4 and enough_lies_so(inputs):
            lying = [v if v in last or v in parts else arrange(v) for v in inputs]
            moved = [Permute(_ORDER)(v) for v in lying]  # joined as it lies, seen as before
            made = Permute(_BACK)(type(node.op)(_ORDER.index(node.op.axis))(*moved))
            last.add(made)
            return made
        if isinstance(node.op, Reshape) and inputs[0] in last and is_flat(node):
            return node.op(Arrange(_ROWS)(inputs[0]))  # by blocks; a kernel would copy element by element
        if _follows(node, inputs, last):
            made = current_builder().add(node.op, inputs).outputs
            last.update(made)
            return made
        return None

    return rebuild(graph, visit)


def _is_convolution(node: Node) -> bool:
    return (
        isinstance(node.op, (ConvForward, ConvFused))
        and node.inputs[0].ndim == 4
        and node.inputs[0].dtype is dtypes.float32
    )


def _follows(node: Node, inputs, last: set[Value]) -> bool:
    """Whether a node's results lie as images with channels last do because one of its inputs does."""
    if isinstance(node.op, (Elementwise, Embed)):  # what is padded lies as it did
        return node.outputs[0].ndim == 4 and any(v in last for v in inputs)
    return node.op.name in _POOLS and inputs[0] in last


def _gain(graph: Graph) -> float:
    """About how many nanoseconds it saves, less what must be saved for it to be worthwhile."""
    if not any(_is_convolution(node) for node in graph.nodes):
        return 0
    if any(isinstance(node.op, ConvFused) and _is_convolution(node) for node in graph.nodes):
        return math.inf  # weights are packed, and residuals lie as results do
    if any(isinstance(node.op, (ConvBackwardData, ConvBackwardWeight)) for node in graph.nodes):
        return 0
    last: set[Value] = set()
    arranged: set[Value] = set()
    whole = saved = paid = 0.0
    for node in graph.nodes:
        if _is_convolution(node):
            x, w, y = node.inputs[0], node.inputs[1], node.outputs[0]
            time = 2 * _OPERATION * _count(y.shape) * _count(w.shape[1:])
            whole += time
            if x not in last and x not in arranged:
                arranged.add(x)
                paid += _bytes(x)
            if not _is_ours(node):
                saved += _QUICKER * time + _bytes(x) + _bytes(y)
                whole += _bytes(x) + _bytes(y)
            last.add(y)
        elif _follows(node, node.inputs, last):
            last.update(node.outputs)
        elif isinstance(node.op, Reshape):  # flattened for a linear layer, for instance
            paid += sum(_bytes(v) for v in node.inputs if v in last and _count(v.shape[2:]) > 1)
    paid += sum(_bytes(v) for v in graph.roots() if v in last)
    return saved - paid - _WORTHWHILE * whole


def _is_ours(node: Node) -> bool:
    """Whether src/library computes this convolution without oneDNN, in either layout; roughly its own rules."""
    op, w, y = node.op, node.inputs[1], node.outputs[0]
    if op.groups != 1:
        return False
    out, channels, *kernel = (hint(n) for n in w.shape)
    work = _count(y.shape) * _count(w.shape[1:])
    if kernel == [1, 1]:
        return min(out, channels) >= 16 and work >= 1e6
    small_step = set(op.stride) == {1} and set(op.dilation) == {1}
    return kernel == [3, 3] and small_step and out % 16 == 0 and channels % 16 == 0 and work > 1.6e7


def _count(shape) -> int:
    return math.prod(hint(n) for n in shape)


def _bytes(value: Value) -> float:
    """The time to copy it into another layout."""
    return _BYTE * value.dtype.itemsize * _count(value.shape)
