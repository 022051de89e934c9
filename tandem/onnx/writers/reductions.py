"""Reductions, order, running sums."""

from __future__ import annotations

import numpy as np

from tandem import dtypes
from tandem.graph.ir import Type
from tandem.graph.symbolic import Sym
from tandem.onnx.writers.registry import writes

_KINDS = {"sum": "ReduceSum", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}


@writes("reduce")
def reduce(w, node, x):
    op = node.op
    axes = w.constant(np.array(op.axes, np.int64))
    if not op.axes:
        return x
    if op.kind in ("argmax", "argmin"):
        return _position(w, node, x)
    if op.kind in ("any", "all"):
        narrow = w.cast(x, dtypes.int32)
        result = w.emit("ReduceMax" if op.kind == "any" else "ReduceMin", [narrow, axes], keepdims=1)
        return w.emit("Greater", [result, w.scalar(0, dtypes.int32)])  # of nothing it is the type's end
    wanted = node.outputs[0].dtype
    x = w.cast(x, wanted)
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
    given = node.inputs[0]
    count, one = given.shape[op.axis], w.scalar(1, dtypes.int64)
    if not isinstance(count, Sym):
        step = 1
        while step < count:
            x = _joined(w, node, x, w.shape([step]))
            step *= 2
        return x
    last = w.shape([count])

    def body(inner, iteration, going, x, step):
        x = _joined(inner, node, x, step)
        step = inner.emit("Add", [step, step])
        return [inner.emit("Squeeze", [inner.emit("Less", [step, last])]), x, step]

    types = [given.type, Type(dtypes.int64, (1,))]
    going = w.emit("Less", [one, w.size(count)])
    graph = w.loop_body(body, types)
    return w.emit("Loop", ["", going, x, w.shape([1])], 2, True, [t.dtype for t in types], body=graph)[0]


def _joined(w, node, x: str, step: str) -> str:
    """Each element with the one `step` before it: as often as the size has bits, and all before it are in."""
    op, dtype = node.op, node.inputs[0].dtype
    axis, none, last = w.shape([op.axis]), w.shape([0]), w.size(node.inputs[0].shape[op.axis])
    pads = w.emit("Concat", [none, step] if op.reverse else [step, none], axis=0)
    padded = w.emit("Pad", [x, pads, w.scalar(_neutral(op.kind, dtype), dtype), axis])
    last = w.emit("Reshape", [last, w.shape([1])])
    ends = [step, w.emit("Add", [last, step])] if op.reverse else [none, last]
    other = w.emit("Slice", [padded, *ends, axis])
    if op.kind != "logsum":
        return w.emit({"sum": "Add", "prod": "Mul", "max": "Max", "min": "Min"}[op.kind], [x, other])
    apart = w.emit("Exp", [w.emit("Neg", [w.emit("Abs", [w.emit("Sub", [x, other])])])])
    apart = w.emit("Where", [w.emit("Equal", [x, other]), w.scalar(1, dtype), apart])  # also of equal infinities
    more = w.emit("Log", [w.emit("Add", [apart, w.scalar(1, dtype)])])
    return w.emit("Add", [w.emit("Max", [x, other]), more])


def _neutral(kind: str, dtype: dtypes.DType):
    """What changes nothing where it comes in."""
    if kind in ("sum", "prod"):
        return 0 if kind == "sum" else 1
    if dtype.is_floating:
        return float("inf") if kind == "min" else float("-inf")
    limits = np.iinfo(dtype.numpy) if dtype.is_integer else None
    return kind == "min" if limits is None else limits.max if kind == "min" else limits.min


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
