"""Reductions, order, running sums."""

from __future__ import annotations

import numpy as np

from tandem import dtypes
from tandem.graph.symbolic import Sym
from tandem.onnx.types import code_of
from tandem.onnx.writers.registry import writes

_KINDS = {"sum": "ReduceSum", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}


@writes("reduce")
def reduce(w, node, x):
    op, given = node.op, node.inputs[0]
    axes = w.constant(np.array(op.axes, np.int64))
    if not op.axes:
        return x
    if op.kind in ("argmax", "argmin"):
        return _position(w, node, x)
    if op.kind in ("any", "all"):
        narrow = w.emit("Cast", [x], to=code_of(dtypes.int32))
        result = w.emit("ReduceMax" if op.kind == "any" else "ReduceMin", [narrow, axes], keepdims=1)
        return w.emit("Cast", [result], to=code_of(dtypes.bool_))
    wanted = node.outputs[0].dtype
    if given.dtype is not wanted:
        x = w.emit("Cast", [x], to=code_of(wanted))
    return w.emit(_KINDS[op.kind], [x, axes], keepdims=1)


def _position(w, node, x):
    op, given = node.op, node.inputs[0]
    kind = "ArgMax" if op.kind == "argmax" else "ArgMin"
    if len(op.axes) == 1:
        return w.emit(kind, [x], axis=op.axes[0], keepdims=1)
    if len(op.axes) != given.ndim:
        w.refuse(node, "positions over several of the axes")
    flat = w.emit("Reshape", [x, w.constant(np.array([-1], np.int64))])
    return w.emit("Reshape", [w.emit(kind, [flat], axis=0, keepdims=1), w.constant(np.ones(given.ndim, np.int64))])


@writes("softmax")
def softmax(w, node, x):
    return w.emit("Softmax", [x], axis=node.op.axis)


@writes("log_softmax")
def log_softmax(w, node, x):
    return w.emit("LogSoftmax", [x], axis=node.op.axis)


@writes("log_sum_exp")
def log_sum_exp(w, node, x):
    return w.emit("ReduceLogSumExp", [x, w.constant(np.array(node.op.axes, np.int64))], keepdims=1)


@writes("cumulative")
def cumulative(w, node, x):
    op = node.op
    kinds = {"sum": "CumSum"} | ({"prod": "CumProd"} if w.opset >= 26 else {})
    if op.kind in kinds:
        return w.emit(kinds[op.kind], [x, w.scalar(op.axis, dtypes.int64)], reverse=int(op.reverse))
    joins = {"prod": ("Mul", 1), "max": ("Max", float("-inf")), "min": ("Min", float("inf"))}
    count, dtype = node.inputs[0].shape[op.axis], node.inputs[0].dtype
    if op.kind not in joins or isinstance(count, Sym) or not (dtype.is_floating or op.kind == "prod"):
        w.refuse(node, f"the running {op.kind}" + " along an axis of any size" * isinstance(count, Sym))
    join, neutral = joins[op.kind]
    axis = w.shape([op.axis])
    step = 1
    while step < count:  # each element with the one `step` before it: as many steps as the size has bits
        pads = w.shape([0, step] if op.reverse else [step, 0])
        padded = w.emit("Pad", [x, pads, w.scalar(neutral, dtype), axis])
        ends = [w.shape([step]), w.shape([count + step])] if op.reverse else [w.shape([0]), w.shape([count])]
        x = w.emit(join, [x, w.emit("Slice", [padded, *ends, axis])])
        step *= 2
    return x


@writes("topk")
def topk(w, node, x):
    op = node.op
    return w.emit("TopK", [x, w.shape([op.k])], 2, axis=op.axis, largest=int(op.largest))


@writes("sort")
def sort(w, node, x):
    op = node.op
    count = node.inputs[0].shape[op.axis]
    return w.emit("TopK", [x, w.shape([count])], 2, axis=op.axis, largest=int(op.descending))


@writes("sort_values")
def sort_values(w, node, x):
    return sort(w, node, x)[0]
