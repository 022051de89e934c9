"""Operators without a routine on CUDA devices, written in operators that have one."""

from __future__ import annotations

from collections import Counter

import tandem.ops as F
from tandem import dtypes
from tandem.codegen.cuda.attention import fits
from tandem.codegen.packed_attention import attention_of_three, packed
from tandem.graph.ir import Node, Type
from tandem.graph.symbolic import hint, product
from tandem.ops.arithmetic import Cast
from tandem.ops.attention import Attention, AttentionBackward
from tandem.ops.conv import ConvBackwardData, ConvBackwardWeight, ConvForward
from tandem.ops.define import LibraryOp
from tandem.ops.matmul import Matmul
from tandem.ops.prepare import cast, constant, full_expand
from tandem.ops.unary import Relu

NARROW = (dtypes.float16, dtypes.bfloat16)  # of images whose convolution with a bias is one call, and of wide products


def _wide(dtype):
    return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32


def attention(op, q, k, v, *mask):
    """Scores, softmax, product, with the scores in memory."""
    scores = cast(op._scores(q, k, mask), _wide(q.dtype))
    total = F.LogSumExp((scores.ndim - 1,))(scores)
    p = _probabilities(scores, total)
    out = F.matmul(cast(p, v.dtype), v)
    return out, F.Reshape(q.shape[:3])(total)


def attention_backward(op, g, q, k, v, out, sums, *mask):
    wide = _wide(q.dtype)
    scores = cast(op._scores(q, k, mask), wide)
    total = F.Reshape((*sums.shape, 1))(cast(sums, wide))
    p = _probabilities(scores, total)
    gp = cast(F.matmul(g, F.matrix_transpose(v)), wide)
    inner = F.sum(cast(g, wide) * cast(out, wide), -1, keepdims=True)
    gs = cast(p * (gp - inner) * op.scale, q.dtype)
    gv = F.matmul(F.matrix_transpose(cast(p, g.dtype)), g)
    return F.matmul(gs, k), F.matmul(F.matrix_transpose(gs), q), gv


def _probabilities(scores, total):
    """softmax of the scores; zeros where a row sees no key."""
    seen = F.not_equal(total, constant(float("-inf"), total.dtype))
    shift = F.where(seen, total, constant(0, total.dtype))
    return F.Exp()(scores - full_expand(shift, scores.shape))


class BiasedConv(ConvForward):
    """A convolution whose bias the library adds, in the same call where it can: see `biased`."""


def _images(lowering) -> set:
    """Inputs that lie channels-last."""
    layouts = zip(lowering.graph.inputs, lowering.layouts)
    return {v for v, layout in layouts if layout is not None and layout.unit_axis == 1}


def biased(lowering) -> dict[Node, object]:
    """The convolutions whose bias would be a pass of its own, as in eager calls: no kernel follows that could add it."""
    graph, images = lowering.graph, _images(lowering)
    found = {node: _in_the_library for node in graph.nodes if type(node.op) is ConvForward and _is_biased(node, images)}
    if found:
        for node in graph.nodes:
            if not isinstance(node.op, LibraryOp):
                for v in node.inputs:
                    found.pop(v.node, None)
    return found


class ReluConv(ConvForward):
    """A convolution whose result, with the bias, the library rectifies: see `rectified`."""

    name = "conv_relu"
    routine = "conv_relu"


def rectified(lowering) -> dict[Node, object]:
    """The ReLUs of convolutions with a bias that nobody else reads, where a library call wants their result in memory."""
    graph, saved, images = lowering.graph, lowering.saved, _images(lowering)
    found = {}
    for node in graph.nodes:
        convolved = node.inputs[0] if isinstance(node.op, Relu) else None
        if convolved is not None and type(convolved.op) is ConvForward and _is_biased(convolved.node, images):
            found[node] = _rectified
    if found:
        held = {*graph.outputs, *saved, *(v for _, v in graph.mutations)}
        read: Counter = Counter()
        wanted = set()
        for node in graph.nodes:
            read.update(node.inputs)
            if isinstance(node.op, LibraryOp):
                wanted.update(node.inputs)
        for node in list(found):
            convolved = node.inputs[0]
            if read[convolved] > 1 or convolved in held or node.outputs[0] not in wanted:
                del found[node]
    return found


class WideMatmul(Matmul):
    """A product of 16-bit matrices in float32, as it is computed: see `wide_products`."""

    def infer(self, a, b):
        return Type(dtypes.float32, super().infer(a, b).shape)


def wide_products(lowering) -> dict[Node, object]:
    """The casts to float32 of products that nobody else reads, and that are results: gradients of weights in mixed precision.
    Small products have a kernel of ours, which is quicker with a cast than a call of the library."""
    graph, saved, found = lowering.graph, lowering.saved, {}
    for node in graph.nodes:
        if isinstance(node.op, Cast) and type(node.inputs[0].op) is Matmul and _is_wide(node):
            found[node] = _as_computed
    if found:
        results = {*graph.outputs}
        read = Counter(v for node in graph.nodes for v in node.inputs)
        held = {*graph.outputs, *saved, *(v for _, v in graph.mutations)}
        for node in list(found):
            narrow, wide = node.inputs[0], node.outputs[0]
            if read[narrow] > 1 or narrow in held or read[wide] or wide not in results:
                del found[node]
    return found


def _is_wide(node: Node) -> bool:
    narrow, wide = node.inputs[0], node.outputs[0]
    large = hint(product(wide.shape)) >= 1 << 16
    return large and narrow.dtype in NARROW and wide.dtype is dtypes.float32 and len(narrow.node.inputs) == 2


def _as_computed(op: Cast, x):
    return WideMatmul()(*x.node.inputs)


def _is_biased(node: Node, images: set) -> bool:
    op = node.op
    if len(node.inputs) != 3 or op.groups != 1 or node.inputs[0].dtype not in NARROW:
        return False
    if not all(low is high or low == high for low, high in zip(op.pad_low, op.pad_high)):
        return False
    # Few channels, as of images, have faster kernels that add nothing; of images that lie channels-last they become 8.
    sizes = node.inputs[1].shape[:2]
    if hint(sizes[1]) < 8 and _uncast(node.inputs[0]) in images and sizes[1] < 8:
        sizes = sizes[:1]
    return all(hint(n) % 8 == 0 for n in sizes) and all(n % 8 == 0 for n in sizes)  # symbolic ones leave guards


def _uncast(v):
    while isinstance(v.op, Cast):
        v = v.node.inputs[0]
    return v


def _in_the_library(op: ConvForward, x, w, bias):
    return BiasedConv(*op.geometry)(x, w, bias)


def _rectified(op: Relu, x):
    return ReluConv(*x.op.geometry)(*x.node.inputs)


def _with_bias(op, x, w, bias):
    """Added afterwards, where it is one kernel with what follows."""
    y = ConvForward(*op.geometry)(x, w)
    spread = F.Reshape((1, bias.shape[0], *(1,) * (y.ndim - 2)))(bias)
    return y + full_expand(spread, y.shape)


# cuDNN pads both ends alike: for others the padding is done before.


def _padded(op, x):
    starts = (0, 0, *op.pad_low)
    sizes = [n + low + high for n, low, high in zip(x.shape[2:], op.pad_low, op.pad_high)]
    return F.Embed(starts, (1,) * x.ndim, (*x.shape[:2], *sizes))(x)


def _without_padding(op) -> tuple:
    none = (0,) * len(op.stride)
    return op.stride, none, none, op.dilation, op.groups


def _padded_forward(op, x, w, *bias):
    return ConvForward(*_without_padding(op))(_padded(op, x), w, *bias)


def _padded_data(op, g, w):
    sizes = tuple(n + low + high for n, low, high in zip(op.size, op.pad_low, op.pad_high))
    full = ConvBackwardData(*_without_padding(op), sizes)(g, w)
    return F.Slice((0, 0, *op.pad_low), (1,) * full.ndim, (*full.shape[:2], *op.size))(full)


def _padded_weight(op, x, g):
    return ConvBackwardWeight(*_without_padding(op), op.kernel)(_padded(op, x), g)


_PADDED = {ConvForward: _padded_forward, ConvBackwardData: _padded_data, ConvBackwardWeight: _padded_weight}


def convolution(node, lowering):
    """Padding that differs between both ends is done before, and a bias added afterwards."""
    op = node.op
    if any(low is not high and low != high for low, high in zip(op.pad_low, op.pad_high)):
        return _PADDED[type(op)]
    return _with_bias if len(node.inputs) == 3 else None


def concatenation(node, lowering):
    """Gradients of attention that belong together, where a kernel of ours computes them."""
    made = attention_of_three(node)
    return packed if made is not None and _fits(made, lowering) else None


def attention_formula(node, lowering):
    return None if _fits(node, lowering) else _FORMULAS[type(node.op)]


def _fits(node, lowering) -> bool:
    """Whether a kernel of ours computes attention, or its gradients, of these sizes."""
    backward = type(node.op) is AttentionBackward
    types = [v.type for v in node.inputs]
    return fits(node.op, types[1:] if backward else types, backward, lowering.target.capability)


_FORMULAS = {Attention: attention, AttentionBackward: attention_backward}
