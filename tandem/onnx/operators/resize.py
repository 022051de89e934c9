"""Resize, grids, and regions of interest."""

from __future__ import annotations

import itertools

import numpy as np

import tandem.nn.functional as F
import tandem.ops as ops
from tandem import dtypes
from tandem.onnx.operators.shapes import ints
from tandem.onnx.registry import onnx_op
from tandem.tensors.constructors import asarray


@onnx_op("Resize", since=10, static=(1,))
def resize_scales(node, x, scales):
    sizes = [int(np.floor(n * s)) for n, s in zip(x.shape, scales, strict=True)]
    mode = node.get("mode", "nearest")
    return resize_axes(x, range(x.ndim), sizes, list(scales), mode, "asymmetric", "floor")


@onnx_op("Resize", since=11, static=(1, 2, 3))
def resize(node, x, roi=None, scales=None, sizes=None):
    axes = [a % x.ndim for a in node.get("axes", range(x.ndim))]
    given = [int(x.shape[a]) for a in axes]
    if scales is not None and scales.size:
        scales = [float(s) for s in scales]
        wanted = [int(np.floor(n * s)) for n, s in zip(given, scales, strict=True)]
    else:
        wanted = list(ints(sizes))
        scales = [m / n for m, n in zip(wanted, given, strict=True)]
        policy = node.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            scale = min(scales) if policy == "not_larger" else max(scales)
            scales = [scale] * len(axes)
            wanted = [int(np.floor(n * scale + 0.5)) for n in given]
    region = None
    if node.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        region = [(float(roi[i]), float(roi[i + len(axes)])) for i in range(len(axes))]
    return resize_axes(
        x, axes, wanted, scales, node.get("mode", "nearest"), node.get("coordinate_transformation_mode", "half_pixel"),
        node.get("nearest_mode", "round_prefer_floor"), node.get("cubic_coeff_a", -0.75),
        bool(node.get("exclude_outside", 0)), bool(node.get("antialias", 0)), region, node.get("extrapolation_value", 0.0),
    )  # fmt: skip


def resize_axes(
    x, axes, sizes, scales, mode, transform, nearest="floor", cubic=-0.75, exclude=False, antialias=False, region=None,
    extrapolation=0.0,
):  # fmt: skip
    """Each axis in its turn: what it reads and with what weight depends on that axis alone."""
    dtype = x.dtype
    wide = x if mode == "nearest" or dtype.is_inexact else x.to(dtypes.float32)
    outside = None
    for i, (axis, size, scale) in enumerate(zip(axes, sizes, scales, strict=True)):
        n = int(wide.shape[axis])
        if size == n and scale == 1 and region is None:
            continue
        at = _coordinates(n, size, scale, transform, None if region is None else region[i])
        if region is not None:
            beyond = ((at < 0) | (at > n - 1)).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
            outside = beyond if outside is None else outside | beyond
        taps, weights = _taps(at, n, scale, mode, nearest, cubic, exclude, antialias)
        wide = _apply(wide, axis, taps, weights)
    if outside is not None:
        wide = ops.where(asarray(outside), extrapolation, wide)
    if wide.dtype is not dtype:
        wide = ops.clip(ops.round(wide), 0, 255) if dtype is dtypes.uint8 else ops.round(wide)
    return wide.to(dtype)


def _coordinates(n: int, size: int, scale: float, transform: str, region) -> np.ndarray:
    """Where each element of the result lies on the axis that is read."""
    out = np.arange(size, dtype=np.float64)
    if transform == "asymmetric":
        return out / scale
    if transform == "align_corners":
        width = scale * n
        return np.zeros(size) if width <= 1 else out * (n - 1) / (width - 1)
    if transform == "pytorch_half_pixel":
        return np.full(size, -0.5) if size == 1 else (out + 0.5) / scale - 0.5
    if transform == "half_pixel_symmetric":
        return n / 2 * (1 - size / (scale * n)) + (out + 0.5) / scale - 0.5
    if transform == "tf_half_pixel_for_nn":
        return (out + 0.5) / scale
    if transform == "tf_crop_and_resize":
        start, end = region
        if size == 1:
            return np.full(1, 0.5 * (start + end) * (n - 1))
        return start * (n - 1) + out * (end - start) * (n - 1) / (size - 1)
    return (out + 0.5) / scale - 0.5


def _taps(at, n, scale, mode, nearest, cubic, exclude, antialias):
    """(indices, weights), each (taps, size)."""
    if mode == "nearest":
        rounded = {
            "round_prefer_floor": lambda: np.ceil(at - 0.5),
            "round_prefer_ceil": lambda: np.floor(at + 0.5),
            "floor": lambda: np.floor(at),
            "ceil": lambda: np.ceil(at),
        }[nearest]()
        return np.clip(rounded, 0, n - 1).astype(np.int64)[None], None
    stretch = max(1.0, 1 / scale) if antialias else 1.0
    reach = (1 if mode == "linear" else 2) * stretch
    low = np.floor(at - reach).astype(np.int64) + 1
    count = int(np.floor(2 * reach)) + (0 if reach == int(reach) and not antialias else 1)
    index = low[None] + np.arange(count)[:, None]
    distance = np.abs(at[None] - index) / stretch
    weights = np.maximum(1 - distance, 0) if mode == "linear" else _cubic(distance, cubic)
    if exclude:
        weights = np.where((index < 0) | (index > n - 1), 0, weights)
    if exclude or antialias:
        weights = weights / weights.sum(0, keepdims=True)
    return np.clip(index, 0, n - 1), weights


def _cubic(d, a: float):
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _apply(x, axis: int, taps, weights):
    if weights is None:
        return ops.index_select(x, axis, asarray(taps[0]))
    total = None
    for index, weight in zip(taps, weights, strict=True):
        if not weight.any():
            continue
        shape = [-1 if a == axis else 1 for a in range(x.ndim)]
        part = ops.index_select(x, axis, asarray(index)) * asarray(weight.reshape(shape)).to(x.dtype)
        total = part if total is None else total + part
    return total


@onnx_op("Upsample", since=1)
def upsample_attributes(node, x):
    return _upsample(node, x, node.get("scales"))


@onnx_op("Upsample", since=9, static=(1,))
def upsample(node, x, scales):
    return _upsample(node, x, scales)


def _upsample(node, x, scales):
    sizes = [int(np.floor(n * s)) for n, s in zip(x.shape, scales, strict=True)]
    mode = "linear" if node.get("mode", "nearest") in ("linear", "bilinear") else "nearest"
    return resize_axes(x, range(x.ndim), sizes, list(scales), mode, "asymmetric", "floor")


@onnx_op("AffineGrid", static=(1,))
def affine_grid(node, theta, sizes):
    return F.affine_grid(theta, ints(sizes), align_corners=bool(node.get("align_corners", 0)))


@onnx_op("GridSample")
def grid_sample(node, x, grid):
    mode = {
        "linear": "bilinear",
        "bilinear": "bilinear",
        "nearest": "nearest",
        "cubic": "bicubic",
        "bicubic": "bicubic",
    }[node.get("mode", "linear")]
    return F.grid_sample(x, grid, mode, node.get("padding_mode", "zeros"), bool(node.get("align_corners", 0)))


@onnx_op("RoiAlign", static=(1, 2))
def roi_align(node, x, rois, batches):
    """Each region as a grid of cells, each the mean or the largest of points read between elements."""
    ph, pw = node.get("output_height", 1), node.get("output_width", 1)
    ratio, scale = node.get("sampling_ratio", 0), node.get("spatial_scale", 1.0)
    half = node.get("coordinate_transformation_mode", "half_pixel" if node.version >= 16 else "output_half_pixel")
    shift = 0.5 if half == "half_pixel" else 0.0
    reduce = ops.amax if node.get("mode", "avg") == "max" else ops.mean
    results = []
    for (x1, y1, x2, y2), batch in zip(np.asarray(rois, np.float64) * scale - shift, batches, strict=True):
        width, height = x2 - x1, y2 - y1
        if not shift:
            width, height = max(width, 1.0), max(height, 1.0)
        ny = ratio or max(int(np.ceil(height / ph)), 1)
        nx = ratio or max(int(np.ceil(width / pw)), 1)
        ys = y1 + (np.arange(ph * ny) + 0.5) * height / (ph * ny)
        xs = x1 + (np.arange(pw * nx) + 0.5) * width / (pw * nx)
        points = _corners(x[int(batch)], ys, xs)  # of four weighted corners: (4, channels, ph * ny, pw * nx)
        if reduce is ops.amax:
            cells = ops.stack(points).reshape((4, int(x.shape[1]), ph, ny, pw, nx))
            results.append(ops.amax(cells, axis=(0, 3, 5)))
        else:
            cells = sum(points[1:], points[0]).reshape((int(x.shape[1]), ph, ny, pw, nx))
            results.append(ops.mean(cells, axis=(2, 4)))
    return ops.stack(results)


def _corners(image, ys, xs) -> list:
    """The four neighbours of every point, each times its weight; points far outside are zero."""
    h, w = int(image.shape[1]), int(image.shape[2])
    inside = ((ys >= -1) & (ys <= h))[:, None] & ((xs >= -1) & (xs <= w))[None]
    (y0, y1, wy), (x0, x1, wx) = _neighbours(ys, h), _neighbours(xs, w)
    parts = []
    for (yi, a), (xi, b) in itertools.product(((y0, 1 - wy), (y1, wy)), ((x0, 1 - wx), (x1, wx))):
        read = ops.index_select(ops.index_select(image, 1, asarray(yi)), 2, asarray(xi))
        weight = np.where(inside, a[:, None] * b[None], 0).astype(np.float32)
        parts.append(read * asarray(weight).to(image.dtype))
    return parts


def _neighbours(at, n: int):
    at = np.clip(at, 0, n - 1)
    low = np.minimum(np.floor(at).astype(np.int64), n - 1)
    return low, np.minimum(low + 1, n - 1), at - low
