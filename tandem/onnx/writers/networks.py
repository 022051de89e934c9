"""Products, convolutions, pooling, attention, recurrent layers."""

from __future__ import annotations

import math

import numpy as np

from tandem import dtypes
from tandem.export.fourier import power_of_two
from tandem.graph.symbolic import Sym
from tandem.onnx.writers.registry import writes


@writes("matmul")
def matmul(w, node, a, b, bias=None):
    product = w.emit("MatMul", [a, b])
    return product if bias is None else w.emit("Add", [product, bias])


@writes("linear")
def linear(w, node, x, weight, bias=None):
    if not node.outputs[0].dtype.is_floating:  # onnxruntime has no Gemm of integers
        product = w.emit("MatMul", [x, w.emit("Transpose", [weight], perm=[1, 0])])
        return product if bias is None else w.emit("Add", [product, bias])
    return w.emit("Gemm", [x, weight] if bias is None else [x, weight, bias], transB=1)


def _geometry(op) -> dict:
    return {
        "strides": list(op.stride), "dilations": list(op.dilation), "pads": [*op.pad_low, *op.pad_high], "group": op.groups,
    }  # fmt: skip


@writes("conv_forward")
def conv(w, node, x, weight, bias=None):
    kernel = [int(n) for n in node.inputs[1].shape[2:]]
    return w.emit("Conv", [x, weight] if bias is None else [x, weight, bias], kernel_shape=kernel, **_geometry(node.op))


@writes("conv_backward_data")
def conv_transpose(w, node, g, weight):
    op = node.op
    kernel = [int(n) for n in node.inputs[1].shape[2:]]
    extra = []
    for size, n, k, s, low, high, d in zip(
        op.size, node.inputs[0].shape[2:], kernel, op.stride, op.pad_low, op.pad_high, op.dilation, strict=True
    ):
        more = size - ((n - 1) * s + (k - 1) * d + 1 - low - high)
        if isinstance(more, Sym):
            w.refuse(node, "a size that depends on the input in another way than its windows do")
        extra.append(more)
    return w.emit("ConvTranspose", [g, weight], kernel_shape=kernel, output_padding=extra, **_geometry(op))


def _windows(op) -> dict:
    return {"kernel_shape": list(op.kernel), "strides": list(op.stride), "pads": [*op.padding, *op.padding]}


def _ceiled(w, node) -> int:
    """Whether the last window may reach beyond the padding."""
    op, modes = node.op, set()
    for n, m, k, s, p, d in zip(
        node.inputs[0].shape[2:], op.size, op.kernel, op.stride, op.padding, op.dilation, strict=True
    ):
        floor = (n + 2 * p - d * (k - 1) - 1) // s + 1
        modes.add(0 if (not isinstance(m, Sym) and not isinstance(floor, Sym) and m == floor) or m is floor else 1)
    return max(modes, default=0)


@writes("pool_max")
def max_pool(w, node, x):
    options = {**_windows(node.op), "dilations": list(node.op.dilation), "ceil_mode": _ceiled(w, node)}
    if not w.is_used(node.outputs[1]):
        return w.emit("MaxPool", [x], **options), ""
    values, positions = w.emit("MaxPool", [x], 2, **options)
    spatial = math.prod(node.inputs[0].shape[2:])  # ours count inside a plane, ONNX's in the whole tensor
    return values, w.emit("Mod", [positions, w.size(spatial)])


@writes("pool_avg")
def average_pool(w, node, x):
    op = node.op
    return w.emit("AveragePool", [x], **_windows(op), count_include_pad=int(op.include_pad), ceil_mode=_ceiled(w, node))


@writes("pool_adaptive_avg")
def adaptive_average_pool(w, node, x):
    return _adaptive(w, node, x, "AveragePool", "GlobalAveragePool")


@writes("pool_adaptive_max")
def adaptive_max_pool(w, node, x):
    if w.is_used(node.outputs[1]):
        w.refuse(node, "positions of adaptive windows")
    return _adaptive(w, node, x, "MaxPool", "GlobalMaxPool"), ""


def _adaptive(w, node, x, op: str, whole: str):
    given, size = node.inputs[0].shape[2:], node.op.size
    if all(not isinstance(m, Sym) and m == 1 for m in size):
        return w.emit(whole, [x])
    if any(isinstance(n, Sym) for n in given) or (
        op == "MaxPool" and any(n % m for n, m in zip(given, size, strict=True))
    ):
        w.refuse(node, f"windows that divide {given} into {size} unevenly")
    if any(n % m for n, m in zip(given, size, strict=True)):
        return _uneven_means(w, node, x)
    kernel = [n // m for n, m in zip(given, size, strict=True)]
    return w.emit(op, [x], kernel_shape=kernel, strides=kernel)


def _uneven_means(w, node, x):
    """Means over windows of different sizes: a product with a matrix of weights for each axis."""
    dtype = node.inputs[0].dtype.numpy
    for axis, (n, m) in enumerate(zip(node.inputs[0].shape[2:], node.op.size, strict=True), 2):
        weights = np.zeros((n, m), dtype)
        for j in range(m):
            begin, end = j * n // m, -(-(j + 1) * n // m)
            weights[begin:end, j] = 1 / (end - begin)
        ndim = node.inputs[0].ndim
        order = [a for a in range(ndim) if a != axis] + [axis]
        back = list(np.argsort(order))
        product = w.emit("MatMul", [w.emit("Transpose", [x], perm=order), w.constant(weights)])
        x = w.emit("Transpose", [product], perm=[int(a) for a in back])
    return x


@writes("attention")
def attention(w, node, q, k, v, mask=None):
    op = node.op
    if w.is_used(node.outputs[1]):
        w.refuse(node, "the sums that only gradients use")
    dtype = node.inputs[0].dtype
    ndim = node.inputs[1].ndim
    swapped = w.emit("Transpose", [k], perm=[*range(ndim - 2), ndim - 1, ndim - 2])
    scores = w.emit("Mul", [w.emit("MatMul", [q, swapped]), w.scalar(op.scale, dtype)])
    lowest = w.scalar(float("-inf"), dtype)
    if mask is not None:
        boolean = node.inputs[3].dtype is dtypes.bool_
        scores = w.emit("Where", [mask, scores, lowest]) if boolean else w.emit("Add", [scores, mask])
    if op.causal:
        rows, columns = node.inputs[0].shape[2], node.inputs[1].shape[2]
        seen = w.emit("LessOrEqual", [_line(w, columns, (1, -1)), _line(w, rows, (-1, 1))])
        scores = w.emit("Where", [seen, scores, lowest])
    weights = w.emit("Softmax", [scores], axis=-1)
    if mask is not None:  # a row that sees nothing is zero
        weights = w.emit("Where", [w.emit("IsNaN", [weights]), w.scalar(0, dtype), weights])
    return w.emit("MatMul", [weights, v]), ""


def _line(w, count, shape):
    if isinstance(count, Sym):
        line = w.emit("Range", [w.scalar(0, dtypes.int64), w.size(count), w.scalar(1, dtypes.int64)])
        return w.emit("Reshape", [line, w.constant(np.array(shape, np.int64))])
    return w.constant(np.arange(count, dtype=np.int64).reshape(shape))


@writes("fourier_parts")
def fourier(w, node, re, im):
    """DFT where the size is a power of two: for others onnxruntime's has angles that are off by more the larger they are."""
    n = node.inputs[0].shape[-1]
    if not power_of_two(n):
        return w.compose(node, [re, im])
    last = w.constant(np.array([-1], np.int64))
    pairs = w.emit("Concat", [w.emit("Unsqueeze", [p, last]) for p in (re, im)], axis=-1)
    ndim = node.inputs[0].ndim
    if ndim == 1:  # DFT wants a batch
        pairs = w.emit("Unsqueeze", [pairs, w.constant(np.array([0], np.int64))])
    axis = w.scalar(max(ndim, 2) - 1, dtypes.int64)
    made = w.emit("DFT", [pairs, "", axis], inverse=int(not node.op.forward))
    if ndim == 1:
        made = w.emit("Squeeze", [made, w.constant(np.array([0], np.int64))])
    if not node.op.forward:  # which is divided by n
        made = w.emit("Mul", [made, w.scalar(n, node.inputs[0].dtype)])
    return tuple(w.emit("Gather", [made, w.scalar(k, dtypes.int64)], axis=-1) for k in range(2))


@writes("det")
def det(w, node, x):
    return w.emit("Det", [x])
