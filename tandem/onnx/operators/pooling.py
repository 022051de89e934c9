"""Pooling over windows."""

from __future__ import annotations

import math

import numpy as np

import tandem.nn.functional as F
import tandem.ops as ops
from tandem import dtypes
from tandem.onnx.operators.convolution import padded, window_pads
from tandem.onnx.registry import onnx_op
from tandem.tensors.constructors import asarray, ones, zeros

_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def _windows(node, x):
    """(kernel, strides, dilations, pads), where pads reach as far as ceil_mode asks."""
    kernel = node["kernel_shape"]
    count = len(kernel)
    strides, dilations = node.get("strides", [1] * count), node.get("dilations", [1] * count)
    sizes = [int(n) for n in x.shape[2:]]
    pads = window_pads(node, sizes, kernel, strides, dilations)
    return kernel, strides, dilations, pads, _ceiled(node, sizes, kernel, strides, dilations, pads)


def _ceiled(node, sizes, kernel, strides, dilations, pads):
    if not node.get("ceil_mode", 0):
        return pads
    more = []
    for n, k, s, d, (a, b) in zip(sizes, kernel, strides, dilations, pads, strict=True):
        reach = (k - 1) * d + 1
        count = math.ceil((n + a + b - reach) / s) + 1
        if (count - 1) * s >= n + a:  # a window that begins beyond the elements does not count
            count -= 1
        more.append((a, max((count - 1) * s + reach - n - a, b)))
    return more


@onnx_op("MaxPool")
def max_pool(node, x):
    kernel, strides, dilations, _, pads = _windows(node, x)
    count = len(kernel)
    sizes = [int(n) for n in x.shape[2:]]
    dtype = x.dtype
    wide = x if dtype.is_inexact else x.to(dtypes.float32)
    if not node.has_output(1):
        own = [min(a, b, k // 2) for (a, b), k in zip(pads, kernel, strict=True)]  # what pooling pads by itself
        rest = [(a - o, b - o) for (a, b), o in zip(pads, own, strict=True)]
        wide = padded(wide, rest, -math.inf)
        return _MAX[count](wide, tuple(kernel), tuple(strides), tuple(own), tuple(dilations)).to(dtype)
    wide = padded(wide, pads, -math.inf)
    values, where = _MAX[count](wide, tuple(kernel), tuple(strides), 0, tuple(dilations), return_indices=True)
    return values.to(dtype), _positions(where, sizes, pads, x, node.get("storage_order", 0))


def _positions(where, sizes, pads, x, column_major: int):
    """Positions in the padded spatial axes as positions in the whole tensor."""
    wide = [n + a + b for n, (a, b) in zip(sizes, pads, strict=True)]
    axes, rest = [], where
    for n, (a, _) in reversed(list(zip(wide, pads, strict=True))):
        axes.insert(0, ops.remainder(rest, n) - a)
        rest = ops.floor_divide(rest, n)
    order = list(range(len(sizes)))
    flat, inner = None, 1
    for axis in order if column_major else reversed(order):
        part = axes[axis] * inner
        flat, inner = part if flat is None else flat + part, inner * sizes[axis]
    planes = int(x.shape[0]) * int(x.shape[1])
    first = asarray(np.arange(planes, dtype=np.int64).reshape((x.shape[0], x.shape[1], *(1 for _ in sizes))) * inner)
    return flat + first


@onnx_op("AveragePool")
def average_pool(node, x):
    kernel, strides, dilations, asked, pads = _windows(node, x)
    count, include = len(kernel), node.get("count_include_pad", 0)
    symmetric = all(a == b for a, b in pads)
    if (
        symmetric
        and pads == asked
        and all(d == 1 for d in dilations)
        and all(2 * a <= k for (a, _), k in zip(pads, kernel))
    ):
        padding = tuple(a for a, _ in pads)
        return _AVERAGE[count](x, tuple(kernel), tuple(strides), padding, False, bool(include))
    total = _window_sums(padded(x, pads), kernel, strides, dilations)
    counted = ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    if include:  # what ceil_mode adds beyond the pads never counts
        beyond = [(0, b - c) for (_, b), (_, c) in zip(pads, asked, strict=True)]
        counted = padded(padded(counted, asked, 1.0), beyond)
    else:
        counted = padded(counted, pads)
    return total / _window_sums(counted, kernel, strides, dilations)


def _window_sums(x, kernel, strides, dilations):
    channels = int(x.shape[1])
    weight = ones((channels, 1, *kernel), dtype=x.dtype)
    return _CONV[len(kernel)](x, weight, None, tuple(strides), 0, tuple(dilations), channels)


@onnx_op("LpPool")
def lp_pool(node, x):
    kernel, strides, dilations, _, pads = _windows(node, x)
    p = node.get("p", 2)
    return _window_sums(padded(ops.abs(x) ** p, pads), kernel, strides, dilations) ** (1 / p)


def _spatial(x) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@onnx_op("GlobalAveragePool")
def global_average_pool(node, x):
    return ops.mean(x, axis=_spatial(x), keepdims=True)


@onnx_op("GlobalMaxPool")
def global_max_pool(node, x):
    return ops.amax(x, axis=_spatial(x), keepdims=True)


@onnx_op("GlobalLpPool")
def global_lp_pool(node, x):
    p = node.get("p", 2)
    return ops.sum(ops.abs(x) ** p, axis=_spatial(x), keepdims=True) ** (1 / p)


@onnx_op("MaxUnpool", static=(2,))
def max_unpool(node, x, where, sizes=None):
    kernel = node["kernel_shape"]
    count = len(kernel)
    strides, pads = node.get("strides", [1] * count), node.get("pads", [0] * (2 * count))
    natural = [
        (int(n) - 1) * s - pads[i] - pads[i + count] + k
        for i, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    shape = [int(x.shape[0]), int(x.shape[1]), *natural] if sizes is None else [int(n) for n in sizes]
    spatial = math.prod(natural)
    if sizes is not None:  # positions count in the natural size
        at, rest = None, ops.remainder(where, spatial)
        axes = []
        for n in reversed(natural):
            axes.insert(0, ops.remainder(rest, n))
            rest = ops.floor_divide(rest, n)
        for n, part in zip(shape[2:], axes, strict=True):
            at = part if at is None else at * n + part
        plane = ops.floor_divide(where, spatial)
        where = plane * math.prod(shape[2:]) + at
    flat = zeros((math.prod(shape),), dtype=x.dtype)
    return ops.index_copy(flat, 0, where.reshape((-1,)), x.reshape((-1,))).reshape(tuple(shape))


@onnx_op("MaxRoiPool", static=(1,))
def max_roi_pool(node, x, rois):
    ph, pw = node["pooled_shape"]
    scale = node.get("spatial_scale", 1.0)
    h, w = int(x.shape[2]), int(x.shape[3])
    results = []
    for batch, x1, y1, x2, y2 in np.asarray(rois):
        left, top, right, bottom = (int(np.floor(v * scale + 0.5)) for v in (x1, y1, x2, y2))
        height, width = max(bottom - top + 1, 1) / ph, max(right - left + 1, 1) / pw
        for i in range(ph):
            for j in range(pw):
                r0, r1 = (
                    min(max(int(f(v)) + top, 0), h) for f, v in ((np.floor, i * height), (np.ceil, (i + 1) * height))
                )
                c0, c1 = (
                    min(max(int(f(v)) + left, 0), w) for f, v in ((np.floor, j * width), (np.ceil, (j + 1) * width))
                )
                part = x[int(batch), :, r0:r1, c0:c1]
                empty = r1 <= r0 or c1 <= c0
                results.append(zeros((x.shape[1],), dtype=x.dtype) if empty else ops.amax(part, axis=(1, 2)))
    stacked = ops.stack(results).reshape((len(rois), ph, pw, x.shape[1]))
    return stacked.permute((0, 3, 1, 2))
