"""Convolutions and their windows."""

from __future__ import annotations

import itertools

import numpy as np

import tandem.nn.functional as F
import tandem.ops as ops
from tandem.onnx.registry import onnx_op
from tandem.tensors.constructors import asarray, zeros

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def window_pads(node, sizes, kernel, strides, dilations) -> list[tuple[int, int]]:
    """(before, after) for every spatial axis, by auto_pad or the node's pads."""
    auto = node.get("auto_pad", "NOTSET")
    count = len(kernel)
    if auto == "VALID":
        return [(0, 0)] * count
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = []
        for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
            total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            small, large = total // 2, total - total // 2
            pads.append((small, large) if auto == "SAME_UPPER" else (large, small))
        return pads
    pads = node.get("pads", [0] * (2 * count))
    return [(pads[i], pads[i + count]) for i in range(count)]


def padded(x, pads, value=0.0):
    """x with elements of this value around its spatial axes."""
    flat = [n for pair in reversed(pads) for n in pair]
    return F.pad(x, flat, value=value) if any(flat) else x


def symmetric(x, pads, value=0.0):
    """(x, padding): pads that differ between the two ends are put on first."""
    if all(a == b for a, b in pads):
        return x, tuple(a for a, _ in pads)
    return padded(x, pads, value), (0,) * len(pads)


@onnx_op("Conv")
def conv(node, x, weight, bias=None):
    return convolve(node, x, weight, bias)


def convolve(node, x, weight, bias=None):
    count = x.ndim - 2
    strides, dilations = node.get("strides", [1] * count), node.get("dilations", [1] * count)
    pads = window_pads(node, x.shape[2:], weight.shape[2:], strides, dilations)
    x, padding = symmetric(x, pads)
    return _CONV[count](x, weight, bias, tuple(strides), padding, tuple(dilations), node.get("group", 1))


@onnx_op("ConvTranspose")
def conv_transpose(node, x, weight, bias=None):
    count = x.ndim - 2
    strides, dilations = node.get("strides", [1] * count), node.get("dilations", [1] * count)
    extra = node.get("output_padding", [0] * count)
    kernel = [(int(k) - 1) * d + 1 for k, d in zip(weight.shape[2:], dilations, strict=True)]
    full = [s * (int(n) - 1) + k + e for n, s, k, e in zip(x.shape[2:], strides, kernel, extra, strict=True)]
    auto, shape = node.get("auto_pad", "NOTSET"), node.get("output_shape")
    if shape is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
        shape = shape or [int(n) * s for n, s in zip(x.shape[2:], strides, strict=True)]
        shape = shape[-count:]
        pads = []
        for n, wanted in zip(full, shape, strict=True):
            total = n - wanted
            small, large = total // 2, total - total // 2
            pads.append((small, large) if auto == "SAME_UPPER" else (large, small))
    else:
        pads = window_pads(node, x.shape[2:], weight.shape[2:], strides, dilations)
    if all(a == b and e < max(s, d) for (a, b), e, s, d in zip(pads, extra, strides, dilations, strict=True)):
        padding = tuple(a for a, _ in pads)
        if all(p >= 0 for p in padding):
            return _TRANSPOSED[count](
                x, weight, bias, tuple(strides), padding, tuple(extra), node.get("group", 1), tuple(dilations)
            )
    result = _TRANSPOSED[count](x, weight, bias, tuple(strides), 0, 0, node.get("group", 1), tuple(dilations))
    for axis, (a, b) in enumerate(pads, 2):
        end = b - extra[axis - 2]
        wide = [0] * (2 * count)
        wide[2 * (count - 1 - (axis - 2))], wide[2 * (count - 1 - (axis - 2)) + 1] = -a, -end
        result = F.pad(result, wide) if a or end else result
    return result if bias is None or all(e == 0 for e in extra) else _bias_outside(result, bias, pads, extra)


def _bias_outside(result, bias, pads, extra):
    """Elements that output_padding adds beyond the windows are the bias alone."""
    shape = (1, -1, *(1 for _ in extra))
    inside = ops.ones_like(result[:, :1])
    for axis, ((_, b), e) in enumerate(zip(pads, extra, strict=True), 2):
        beyond = max(e - b, 0)
        if beyond:
            n = result.shape[axis] - beyond
            keep = asarray((np.arange(int(result.shape[axis])) < int(n)).astype(np.float32))
            inside = inside * keep.reshape((1, 1, *(-1 if a == axis else 1 for a in range(2, result.ndim)))).to(
                result.dtype
            )
    return ops.where(inside > 0, result, bias.reshape(shape))


@onnx_op("Col2Im", static=(1, 2))
def col2im(node, x, image, block):
    count = len(image)
    strides, dilations = node.get("strides", [1] * count), node.get("dilations", [1] * count)
    pads = node.get("pads", [0] * (2 * count))
    image, block = [int(n) for n in image], [int(n) for n in block]
    n, c = int(x.shape[0]), int(x.shape[1]) // int(np.prod(block))
    wide = [m + pads[i] + pads[i + count] for i, m in enumerate(image)]
    steps = [(w - (k - 1) * d - 1) // s + 1 for w, k, d, s in zip(wide, block, dilations, strides, strict=True)]
    x = x.reshape((n, c, *block, *steps))
    at = np.zeros((*block, *steps), np.int64)
    for axis in range(count):
        k = np.arange(block[axis]).reshape([-1 if a == axis else 1 for a in range(2 * count)])
        s = np.arange(steps[axis]).reshape([-1 if a == axis + count else 1 for a in range(2 * count)])
        at = at * wide[axis] + k * dilations[axis] + s * strides[axis]
    flat = zeros((n, c, int(np.prod(wide))), dtype=x.dtype)
    flat = ops.index_add(flat, 2, asarray(at.reshape(-1)), x.reshape((n, c, -1)))
    result = flat.reshape((n, c, *wide))
    for axis in range(count):
        result = ops.narrow(result, axis + 2, pads[axis], image[axis])
    return result


@onnx_op("DeformConv")
def deform_conv(node, x, weight, offset, bias=None, mask=None):
    """Convolution whose taps are moved by `offset`, with bilinear reading between elements."""
    n, c, h, w = (int(s) for s in x.shape)
    o, cg, kh, kw = (int(s) for s in weight.shape)
    strides, dilations = node.get("strides", [1, 1]), node.get("dilations", [1, 1])
    pads = window_pads(node, (h, w), (kh, kw), strides, dilations)
    groups, moved = node.get("group", 1), node.get("offset_group", 1)
    oh, ow = int(offset.shape[2]), int(offset.shape[3])
    offset = offset.reshape((n, moved, kh * kw, 2, oh, ow))
    ky, kx = np.meshgrid(np.arange(kh) * dilations[0], np.arange(kw) * dilations[1], indexing="ij")
    y0 = ky.reshape(-1, 1, 1) + np.arange(oh).reshape(1, -1, 1) * strides[0] - pads[0][0]
    x0 = kx.reshape(-1, 1, 1) + np.arange(ow).reshape(1, 1, -1) * strides[1] - pads[1][0]
    ys = asarray(y0.astype(np.float32)).to(x.dtype) + offset[:, :, :, 0]
    xs = asarray(x0.astype(np.float32)).to(x.dtype) + offset[:, :, :, 1]
    sampled = bilinear_taps(x.reshape((n, moved, c // moved, h * w)), h, w, ys, xs)
    if mask is not None:
        sampled = sampled * mask.reshape((n, moved, 1, kh * kw, oh, ow))
    columns = sampled.reshape((n, groups, cg * kh * kw, oh * ow))
    result = ops.matmul(weight.reshape((1, groups, o // groups, cg * kh * kw)), columns).reshape((n, o, oh, ow))
    return result if bias is None else result + bias.reshape((1, -1, 1, 1))


def bilinear_taps(x, h: int, w: int, ys, xs):
    """x: (n, g, c, h*w) read between elements at ys, xs: (n, g, *taps) -> (n, g, c, *taps); zero outside."""
    n, g, c = (int(s) for s in x.shape[:3])
    taps = tuple(ys.shape[2:])
    y0, x0 = ops.floor(ys), ops.floor(xs)
    total = None
    for dy, dx in itertools.product((0, 1), (0, 1)):
        yi, xi = y0 + dy, x0 + dx
        weight = (1 - ops.abs(ys - yi)) * (1 - ops.abs(xs - xi))
        inside = (yi >= 0) & (yi < h) & (xi >= 0) & (xi < w)
        at = (ops.clip(yi, 0, h - 1) * w + ops.clip(xi, 0, w - 1)).to("int64").reshape((n, g, 1, -1))
        read = ops.take_along_axis(x, ops.broadcast_to(at, (n, g, c, at.shape[-1])), axis=-1).reshape((n, g, c, *taps))
        part = read * ops.where(inside, weight, 0).reshape((n, g, 1, *taps))
        total = part if total is None else total + part
    return total


@onnx_op("CausalConvWithState")
def causal_conv_with_state(node, x, weight, bias=None, past=None):
    """Depthwise convolution over (batch, channels, length) that sees only what came before; gives its last inputs too."""
    kernel = int(weight.shape[-1])
    if past is None:
        past = zeros((x.shape[0], x.shape[1], kernel - 1), dtype=x.dtype)
    joined = ops.concat([past, x], axis=2)
    y = F.conv1d(joined, weight, bias, groups=int(x.shape[1]))
    if node.get("activation", "none") in ("silu", "swish"):
        y = F.silu(y)
    return y, ops.narrow(joined, 2, joined.shape[2] - (kernel - 1), kernel - 1)
