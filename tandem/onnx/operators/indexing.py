"""Reading and writing by index."""

from __future__ import annotations

import numpy as np

import tandem.ops as ops
from tandem import dtypes
from tandem.onnx.registry import onnx_op
from tandem.tensors.constructors import asarray, zeros


def _from_end(index, n: int):
    """Indices as int64, where negative ones count from the end."""
    index = index.to(dtypes.int64)
    return ops.where(index < 0, index + n, index)


@onnx_op("Gather")
def gather(node, x, index):
    axis = node.get("axis", 0) % x.ndim
    index = _from_end(index, x.shape[axis])
    taken = ops.index_select(x, axis, index.reshape((-1,)))
    return taken.reshape((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))


@onnx_op("GatherElements")
def gather_elements(node, x, index):
    axis = node.get("axis", 0) % x.ndim
    return ops.gather(x, axis, _from_end(index, x.shape[axis]))


@onnx_op("GatherND")
def gather_nd(node, x, index):
    batch, depth = node.get("batch_dims", 0), int(index.shape[-1])
    lead = tuple(x.shape[:batch])
    rows = _rows(x.shape[batch : batch + depth], index)
    rest = tuple(x.shape[batch + depth :])
    if batch == 0:
        flat = x.reshape((-1, *rest))
        return ops.index_select(flat, 0, rows.reshape((-1,))).reshape((*index.shape[:-1], *rest))
    count = int(np.prod(lead))
    inner = int(np.prod(x.shape[batch : batch + depth]))
    rows = rows.reshape((count, -1)) + asarray(np.arange(count, dtype=np.int64)[:, None] * inner)
    flat = x.reshape((count * inner, *rest))
    return ops.index_select(flat, 0, rows.reshape((-1,))).reshape((*index.shape[:-1], *rest))


def _rows(sizes, index):
    """Index tuples in the last axis as positions in the flattened axes of these sizes."""
    total = None
    for k, n in enumerate(sizes):
        part = _from_end(index[..., k], n)
        total = part if total is None else total * n + part
    return total


@onnx_op("Scatter", "ScatterElements", since=1)
def scatter_elements(node, x, index, updates):
    axis = node.get("axis", 0) % x.ndim
    index = _from_end(index, x.shape[axis])
    reduction = node.get("reduction", "none")
    if reduction == "none":
        return ops.scatter(x, axis, index, updates)
    return ops.scatter_reduce(x, axis, index, updates, _REDUCTIONS[reduction])


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@onnx_op("ScatterND")
def scatter_nd(node, x, index, updates):
    depth = int(index.shape[-1])
    rest = tuple(x.shape[depth:])
    flat = x.reshape((-1, *rest))
    rows = _rows(x.shape[:depth], index).reshape((-1,))
    updates = updates.reshape((-1, *rest))
    reduction = node.get("reduction", "none")
    if reduction == "none":
        result = ops.index_copy(flat, 0, rows, updates)
    else:
        rows = ops.broadcast_to(rows.reshape((-1, *(1 for _ in rest))), updates.shape)
        result = ops.scatter_reduce(flat, 0, rows, updates, _REDUCTIONS[reduction])
    return result.reshape(x.shape)


@onnx_op("TensorScatter")
def tensor_scatter(node, past, update, indices=None):
    """Writes `update` into the cache, each example at its own position."""
    axis = node.get("axis", -2) % past.ndim
    batch, count, limit = past.shape[0], update.shape[axis], past.shape[axis]
    begin = zeros((batch,), dtype=dtypes.int64) if indices is None else indices
    at = begin.reshape((batch, 1)) + asarray(np.arange(int(count)))
    if node.get("mode", "linear") == "circular":
        at = ops.remainder(at, limit)
    sizes = [1] * past.ndim
    sizes[0], sizes[axis] = batch, count
    return ops.scatter(past, axis, ops.broadcast_to(at.reshape(tuple(sizes)), update.shape), update)


@onnx_op("Compress")
def compress(node, x, condition):
    axis = node.get("axis")
    if axis is None:
        x, axis = x.reshape((-1,)), 0
    kept = ops.nonzero(condition)[0]
    return ops.index_select(x, axis, kept)


@onnx_op("NonZero")
def nonzero(node, x):
    return ops.stack(list(ops.nonzero(x)), axis=0)


@onnx_op("OneHot", static=(1,))
def one_hot(node, index, depth, values):
    depth = int(np.asarray(depth).reshape(()))
    axis = node.get("axis", -1)
    index = _from_end(index, depth)  # what is outside is nowhere hot
    hot = ops.equal(ops.unsqueeze(index, -1), asarray(np.arange(depth)))
    return ops.moveaxis(ops.where(hot, values[1], values[0]), -1, axis)


@onnx_op("Unique", host=True)
def unique(node, x):
    axis = node.get("axis")
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not node.get("sorted", 1):  # in the order in which they first appear
        order = np.argsort(first)
        values = np.take(values, order, axis=axis or 0)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return values, *(np.asarray(a, np.int64) for a in (first, inverse, counts))


@onnx_op("NonMaxSuppression", host=True)
def non_max_suppression(node, boxes, scores, limit=None, overlap=None, threshold=None):
    """(batch, class, box) of the boxes that no better one of their class overlaps."""
    limit = 0 if limit is None else int(np.reshape(limit, ()))
    overlap = 0.0 if overlap is None else float(np.reshape(overlap, ()))
    threshold = None if threshold is None else float(np.reshape(threshold, ()))
    if node.get("center_point_box", 0):
        x, y, w, h = np.moveaxis(boxes, -1, 0)
        corners = np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], -1)
    else:
        y1, x1, y2, x2 = np.moveaxis(boxes, -1, 0)
        corners = np.stack([np.minimum(y1, y2), np.minimum(x1, x2), np.maximum(y1, y2), np.maximum(x1, x2)], -1)
    chosen = []
    for b, c in np.ndindex(*scores.shape[:2]):
        for k in _suppress(corners[b], scores[b, c], limit, overlap, threshold):
            chosen.append((b, c, k))
    return np.array(chosen, np.int64).reshape(-1, 3)


def _suppress(corners, scores, limit: int, overlap: float, threshold: float | None) -> list[int]:
    kept: list[int] = []
    area = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    for k in np.argsort(-scores, kind="stable"):
        if len(kept) == limit or (threshold is not None and scores[k] <= threshold):
            break
        if kept:
            others = corners[kept]
            low, high = np.maximum(others[:, :2], corners[k, :2]), np.minimum(others[:, 2:], corners[k, 2:])
            shared = np.prod(np.maximum(high - low, 0), axis=1)
            if np.any(shared / np.maximum(area[kept] + area[k] - shared, 1e-30) > overlap):
                continue
        kept.append(int(k))
    return kept
