"""Shapes and what only moves elements: reshape, transpose, slices, pads, joins."""

from __future__ import annotations

import numpy as np

import tandem.nn.functional as F
import tandem.ops as ops
from tandem import dtypes
from tandem.onnx.operators.low_precision import cast_value, code_of_value
from tandem.onnx.registry import onnx_op
from tandem.onnx.types import dtype_of, has_tensor_type
from tandem.tensors.constructors import asarray


def ints(values) -> tuple[int, ...]:
    return tuple(int(v) for v in np.asarray(values).reshape(-1))


def whole(value) -> int:
    """One integer, of an array of one element."""
    return int(np.reshape(value, ()))


@onnx_op("Shape", scoped=True)
def shape(node, scope, x):
    sizes = list(x.shape)[node.get("start", 0) : node.get("end")]
    return np.array([int(n) for n in sizes], np.int64)


@onnx_op("Size", scoped=True)
def size(node, scope, x):
    return np.array(int(np.prod([int(n) for n in x.shape], dtype=np.int64)), np.int64)


@onnx_op("Reshape", since=1)
def reshape_attribute(node, x):
    return _reshape(x, node["shape"], False)


@onnx_op("Reshape", since=5, static=(1,))
def reshape(node, x, sizes):
    return _reshape(x, ints(sizes), bool(node.get("allowzero", 0)))


def _reshape(x, sizes, zero_is_zero: bool):
    if not zero_is_zero:
        sizes = [x.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    return ops.reshape(x, tuple(sizes))


@onnx_op("Flatten")
def flatten(node, x):
    axis = node.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    rows = 1
    for n in x.shape[:axis]:
        rows *= n
    columns = 1
    for n in x.shape[axis:]:
        columns *= n
    return x.reshape((rows, columns))


@onnx_op("Transpose")
def transpose(node, x):
    return ops.permute(x, tuple(node.get("perm", range(x.ndim - 1, -1, -1))))


@onnx_op("Squeeze", static=(1,))
def squeeze(node, x, axes=None):
    axes = node.get("axes") if axes is None else ints(axes)
    if axes is None:
        axes = [a for a, n in enumerate(x.shape) if n == 1]
    return ops.squeeze(x, tuple(axes)) if len(axes) else x


@onnx_op("Unsqueeze", static=(1,))
def unsqueeze(node, x, axes=None):
    axes = node["axes"] if axes is None else ints(axes)
    ndim = x.ndim + len(axes)
    for axis in sorted(a % ndim for a in axes):
        x = ops.unsqueeze(x, axis)
    return x


@onnx_op("Expand", static=(1,))
def expand(node, x, sizes):
    sizes = np.broadcast_shapes(tuple(int(n) for n in x.shape), ints(sizes))
    return ops.broadcast_to(x, tuple(int(n) for n in sizes))


@onnx_op("Tile", since=1, static=(1, 2))
def tile_axis(node, x, tiles, axis):
    repeats = [1] * x.ndim
    repeats[whole(axis)] = whole(tiles)
    return ops.tile(x, tuple(repeats))


@onnx_op("Tile", since=6, static=(1,))
def tile(node, x, repeats):
    return ops.tile(x, ints(repeats))


@onnx_op("Concat")
def concat(node, *xs):
    return ops.concat(list(xs), axis=node.get("axis", 1))


@onnx_op("Split", since=1, static=(1,))
def split(node, x, sizes=None):
    axis = node.get("axis", 0)
    sizes = node.get("split") if sizes is None else ints(sizes)
    if sizes is None:
        count = node.get("num_outputs", len(node.outputs))
        each = -(-x.shape[axis] // count)
        sizes = [min(each, max(x.shape[axis] - i * each, 0)) for i in range(count)]
    return tuple(ops.split(x, list(sizes), axis))


@onnx_op("Slice", since=1)
def slice_attributes(node, x):
    starts, ends = node["starts"], node["ends"]
    return _slice(x, starts, ends, node.get("axes", range(len(starts))), None)


@onnx_op("Slice", since=10, static=(1, 2, 3, 4))
def slice_(node, x, starts, ends, axes=None, steps=None):
    axes = range(len(starts)) if axes is None else ints(axes)
    return _slice(x, ints(starts), ints(ends), axes, None if steps is None else ints(steps))


def _slice(x, starts, ends, axes, steps):
    index = [slice(None)] * x.ndim
    flipped = []
    for i, axis in enumerate(axes):
        step = 1 if steps is None else steps[i]
        begin, end, step = slice(starts[i], ends[i], step).indices(int(x.shape[axis]))
        if step > 0:
            index[axis] = slice(begin, end, step)
            continue
        count = max(0, -(-(begin - end) // -step))
        low = begin + (count - 1) * step
        index[axis] = slice(low, begin + 1, -step) if count else slice(0, 0)
        flipped.append(axis)
    x = x[tuple(index)]
    return ops.flip(x, tuple(flipped)) if flipped else x


@onnx_op("Pad", since=1)
def pad_attributes(node, x):
    return _pad(x, node.get("pads", node.get("paddings")), node.get("mode", "constant"), node.get("value", 0.0), None)


@onnx_op("Pad", since=11, static=(1, 2, 3))
def pad(node, x, pads, value=None, axes=None):
    value = 0 if value is None else np.asarray(value).item()
    return _pad(x, ints(pads), node.get("mode", "constant"), value, None if axes is None else ints(axes))


def _pad(x, pads, mode, value, axes):
    axes = list(range(x.ndim)) if axes is None else [a % x.ndim for a in axes]
    before, after = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[i + len(axes)]
    for axis in range(x.ndim):  # negative: elements are cut off
        low, high = max(-before[axis], 0), max(-after[axis], 0)
        if low or high:
            x = ops.narrow(x, axis, low, x.shape[axis] - low - high)
    before, after = [max(n, 0) for n in before], [max(n, 0) for n in after]
    if mode == "constant":
        flat = [n for axis in reversed(range(x.ndim)) for n in (before[axis], after[axis])]
        return F.pad(x, flat, value=value)
    for axis in range(x.ndim):
        if before[axis] or after[axis]:
            x = ops.index_select(x, axis, asarray(_sources(int(x.shape[axis]), before[axis], after[axis], mode)))
    return x


def _sources(n: int, before: int, after: int, mode: str) -> np.ndarray:
    """Where each element of a padded axis comes from."""
    at = np.arange(-before, n + after)
    if mode == "edge":
        return np.clip(at, 0, n - 1)
    if mode == "wrap":
        return at % n
    period = max(2 * (n - 1), 1)  # reflect
    at = np.abs(at) % period
    return np.where(at >= n, period - at, at)


@onnx_op("Cast", scoped=True)
def cast(node, scope, x):
    return cast_value(x, node["to"], bool(node.get("saturate", 1)), node.get("round_mode", "up"))


@onnx_op("CastLike", scoped=True)
def cast_like(node, scope, x, like):
    return cast_value(x, code_of_value(like), bool(node.get("saturate", 1)), node.get("round_mode", "up"))


@onnx_op("ConstantOfShape", static=(0,))
def constant_of_shape(node, sizes):
    value = node.get("value")
    value = np.zeros(1, np.float32) if value is None else value
    if not has_tensor_type(value):
        return np.full(ints(sizes), value.reshape(-1)[0])
    return ops.full(ints(sizes), value.reshape(-1)[0].item(), dtype=dtypes.as_dtype(value.dtype))


@onnx_op("EyeLike")
def eye_like(node, x):
    dtype = dtype_of(node["dtype"]) if "dtype" in node.attributes else x.dtype
    rows, columns = (int(n) for n in x.shape)
    return asarray(np.eye(rows, columns, node.get("k", 0), dtype.numpy))


@onnx_op("Range", static=(0, 1, 2))
def range_(node, start, limit, delta):
    start, limit, delta = (np.reshape(v, ()) for v in (start, limit, delta))
    count = max(int(np.ceil((limit - start) / delta)), 0)
    return asarray((start + np.arange(count) * delta).astype(start.dtype))


@onnx_op("Trilu", static=(1,))
def trilu(node, x, k=None):
    k = 0 if k is None else whole(k)
    return ops.triu(x, k) if node.get("upper", 1) else ops.tril(x, k)


@onnx_op("DepthToSpace")
def depth_to_space(node, x):
    b = node["blocksize"]
    n, c, h, w = x.shape
    if node.get("mode", "DCR") == "DCR":
        x = x.reshape((n, b, b, c // (b * b), h, w)).permute((0, 3, 4, 1, 5, 2))
    else:
        x = x.reshape((n, c // (b * b), b, b, h, w)).permute((0, 1, 4, 2, 5, 3))
    return x.reshape((n, c // (b * b), h * b, w * b))


@onnx_op("SpaceToDepth")
def space_to_depth(node, x):
    b = node["blocksize"]
    n, c, h, w = x.shape
    order = (0, 3, 5, 1, 2, 4) if node.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    x = x.reshape((n, c, h // b, b, w // b, b)).permute(order)
    return x.reshape((n, c * b * b, h // b, w // b))


@onnx_op("ReverseSequence", static=(1,))
def reverse_sequence(node, x, lengths):
    time, batch = node.get("time_axis", 0), node.get("batch_axis", 1)
    steps = int(x.shape[time])
    at = np.arange(steps)[:, None]
    index = np.where(at < lengths[None], lengths[None] - 1 - at, at)  # (time, batch)
    if time > batch:
        index = index.T
    sizes = [1] * x.ndim
    sizes[time], sizes[batch] = steps, len(lengths)
    index = ops.broadcast_to(asarray(index.reshape(sizes)), x.shape)
    return ops.take_along_axis(x, index, axis=time)


@onnx_op("CenterCropPad", static=(1,))
def center_crop_pad(node, x, sizes):
    axes = node.get("axes", range(x.ndim))
    pads = [0] * (2 * x.ndim)
    for axis, wanted in zip(axes, ints(sizes), strict=True):
        axis %= x.ndim
        extra = wanted - int(x.shape[axis])
        if extra < 0:
            x = ops.narrow(x, axis, -extra // 2, wanted)
        else:
            pads[axis], pads[axis + x.ndim] = extra // 2, extra - extra // 2
    return _pad(x, pads, "constant", 0, None)
