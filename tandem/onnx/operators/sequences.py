"""Sequences (Python lists of tensors) and optional values (None where there is none)."""

from __future__ import annotations

import numpy as np

import tandem.ops as ops
from tandem.onnx.operators.shapes import ints
from tandem.onnx.registry import onnx_op


@onnx_op("SequenceConstruct", scoped=True)
def construct(node, scope, *xs):
    return list(xs)


@onnx_op("SequenceEmpty", scoped=True)
def empty(node, scope):
    return []


@onnx_op("SequenceAt", scoped=True)
def at(node, scope, sequence, position):
    return sequence[int(position)]


@onnx_op("SequenceLength", scoped=True)
def length(node, scope, sequence):
    return np.array(len(sequence), np.int64)


@onnx_op("SequenceInsert", scoped=True)
def insert(node, scope, sequence, x, position=None):
    at = len(sequence) if position is None else int(position)
    at = at + len(sequence) if at < 0 else at
    return [*sequence[:at], x, *sequence[at:]]


@onnx_op("SequenceErase", scoped=True)
def erase(node, scope, sequence, position=None):
    at = len(sequence) - 1 if position is None else int(position) % len(sequence)
    return [*sequence[:at], *sequence[at + 1 :]]


@onnx_op("SequenceMap", scoped=True)
def map_(node, scope, sequence, *others):
    body = node["body"]
    results = []
    for i, x in enumerate(sequence):
        results.append(scope.run(body, [x, *(o[i] if isinstance(o, list) else o for o in others)]))
    return tuple(list(column) for column in zip(*results, strict=True))


@onnx_op("SplitToSequence", static=(1,))
def split_to_sequence(node, x, sizes=None):
    axis = node.get("axis", 0) % x.ndim
    n = int(x.shape[axis])
    if sizes is None:
        parts = ops.split(x, [1] * n, axis)
        return list(parts) if node.get("keepdims", 1) else [ops.squeeze(p, (axis,)) for p in parts]
    if sizes.ndim == 0:
        each = int(sizes)
        sizes = [min(each, n - i) for i in range(0, n, each)]
    return list(ops.split(x, list(ints(sizes)), axis))


@onnx_op("ConcatFromSequence")
def concat_from_sequence(node, sequence):
    axis = node["axis"]
    return ops.stack(sequence, axis=axis) if node.get("new_axis", 0) else ops.concat(sequence, axis=axis)


@onnx_op("Optional", scoped=True)
def optional(node, scope, x=None):
    return x


@onnx_op("OptionalHasElement", scoped=True)
def has_element(node, scope, x=None):
    return np.array(x is not None)


@onnx_op("OptionalGetElement", scoped=True)
def get_element(node, scope, x):
    return x
