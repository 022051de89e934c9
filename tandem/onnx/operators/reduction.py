"""Reductions over axes, running sums, positions of extrema, order."""

from __future__ import annotations

import tandem.ops as ops
from tandem import dtypes
from tandem.onnx.operators.shapes import whole
from tandem.onnx.registry import onnx_op


def _axes(node, x, axes):
    """The axes to reduce; all of them where none are named, none where that is asked for."""
    if axes is None:
        axes = node.get("axes")
    axes = None if axes is None else tuple(int(a) for a in axes)
    if not axes:
        return () if node.get("noop_with_empty_axes", 0) else tuple(range(x.ndim))
    return axes


def _reduction(name: str, reduce, prepare=None, finish=None):
    """Axes are an attribute at first, and an input from some version on."""

    def run(node, x, axes=None):
        axes = _axes(node, x, axes)
        if prepare is not None:
            x = prepare(x)
        if axes:
            x = reduce(x, axes, bool(node.get("keepdims", 1)))
        return x if finish is None else finish(x)

    onnx_op(name, since=1, static=(1,))(run)


def _norm(x):
    return ops.sqrt(x) if x.dtype.is_inexact else ops.sqrt(x.to(dtypes.float64)).to(x.dtype)


def _log(x):
    return ops.log(x)


def _sum(x, axes, keep):
    return ops.sum(x, axis=axes, keepdims=keep, dtype=x.dtype)


def _prod(x, axes, keep):
    return ops.prod(x, axis=axes, keepdims=keep, dtype=x.dtype)


def _mean(x, axes, keep):
    if x.dtype.is_inexact:
        return ops.mean(x, axis=axes, keepdims=keep)
    count = 1
    for a in axes:
        count *= x.shape[a]
    return ops.div(_sum(x, axes, keep), count, rounding_mode="trunc").to(x.dtype)


def _extremum(reduce, lowest: bool):
    def run(x, axes, keep):
        if x.dtype.kind == "bool":
            return (ops.any if not lowest else ops.all)(x, axis=axes, keepdims=keep)
        if any(x.shape[a] == 0 for a in axes):  # of nothing: the value that any other replaces
            shape = [1 if a in {b % x.ndim for b in axes} else n for a, n in enumerate(x.shape)]
            if not keep:
                shape = [n for a, n in enumerate(x.shape) if a not in {b % x.ndim for b in axes}]
            return ops.full(tuple(shape), _bound(x.dtype, lowest), dtype=x.dtype)
        return reduce(x, axis=axes, keepdims=keep)

    return run


def _bound(dtype, lowest: bool):
    if dtype.is_inexact:
        return float("inf") if lowest else float("-inf")
    bits = 8 * dtype.itemsize - (dtype.kind == "int")
    return 2**bits - 1 if lowest else (-(2**bits) if dtype.kind == "int" else 0)


def _log_sum_exp(x, axes, keep):
    return ops.logsumexp(x, axis=axes, keepdims=keep)


_reduction("ReduceSum", _sum)
_reduction("ReduceProd", _prod)
_reduction("ReduceMean", _mean)
_reduction("ReduceMax", _extremum(ops.amax, lowest=False))
_reduction("ReduceMin", _extremum(ops.amin, lowest=True))
_reduction("ReduceL1", _sum, prepare=ops.abs)
_reduction("ReduceL2", _sum, prepare=ops.square, finish=_norm)
_reduction("ReduceSumSquare", _sum, prepare=ops.square)
_reduction("ReduceLogSum", _sum, finish=_log)


@onnx_op("ReduceLogSumExp", static=(1,))
def reduce_log_sum_exp(node, x, axes=None):
    axes = _axes(node, x, axes)
    return ops.logsumexp(x, axis=axes, keepdims=bool(node.get("keepdims", 1))) if axes else ops.log(ops.exp(x))


def _position(extremum):
    def run(node, x):
        axis, keep = node.get("axis", 0), bool(node.get("keepdims", 1))
        if not node.get("select_last_index", 0):
            return extremum(x, axis=axis, keepdims=keep)
        last = x.shape[axis] - 1
        return last - extremum(ops.flip(x, (axis,)), axis=axis, keepdims=keep)

    return run


onnx_op("ArgMax")(_position(ops.argmax))
onnx_op("ArgMin")(_position(ops.argmin))


def _running(accumulate, neutral):
    def run(node, x, axis):
        axis = whole(axis)
        if node.get("reverse", 0):
            x = ops.flip(x, (axis,))
        result = accumulate(x, axis).to(x.dtype)
        if node.get("exclusive", 0):
            first = ops.full_like(ops.narrow(x, axis, 0, 1), neutral)
            result = ops.concat([first, ops.narrow(result, axis, 0, x.shape[axis] - 1)], axis=axis)
        return ops.flip(result, (axis,)) if node.get("reverse", 0) else result

    return run


onnx_op("CumSum", static=(1,))(_running(ops.cumsum, 0))
onnx_op("CumProd", static=(1,))(_running(ops.cumprod, 1))


@onnx_op("TopK", since=1)
def top_k_attribute(node, x):
    return tuple(ops.topk(x, node["k"], node.get("axis", -1)))


@onnx_op("TopK", since=10, static=(1,))
def top_k(node, x, k):
    axis, largest = node.get("axis", -1), bool(node.get("largest", 1))
    k = whole(k)
    # Equal elements keep their order, which topk does not promise.
    order = ops.argsort(x, axis=axis, descending=largest, stable=True)
    order = ops.narrow(order, axis, 0, k)
    return ops.take_along_axis(x, order, axis=axis), order


@onnx_op("Hardmax", since=1)
def hardmax_flat(node, x):
    return _flattened(node, x, lambda y: _hardmax(y, 1))


@onnx_op("Hardmax", since=13)
def hardmax(node, x):
    return _hardmax(x, node.get("axis", -1))


def _hardmax(x, axis):
    hot = ops.one_hot(ops.argmax(x, axis=axis), x.shape[axis])
    return ops.moveaxis(hot, -1, axis).to(x.dtype)


@onnx_op("Softmax", since=1)
def softmax_flat(node, x):
    return _flattened(node, x, lambda y: ops.softmax(y, axis=1))


@onnx_op("Softmax", since=13)
def softmax(node, x):
    return ops.softmax(x, axis=node.get("axis", -1))


@onnx_op("LogSoftmax", since=1)
def log_softmax_flat(node, x):
    return _flattened(node, x, lambda y: ops.log_softmax(y, axis=1))


@onnx_op("LogSoftmax", since=13)
def log_softmax(node, x):
    return ops.log_softmax(x, axis=node.get("axis", -1))


def _flattened(node, x, function):
    """Before version 13, everything from `axis` on is one axis."""
    axis = node.get("axis", 1) % x.ndim if x.ndim else 0
    rows = 1
    for n in x.shape[:axis]:
        rows *= n
    return function(x.reshape((rows, -1))).reshape(x.shape)
