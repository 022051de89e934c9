"""Movement, indices, constants and sizes."""

from __future__ import annotations

import numpy as np

from tandem import dtypes
from tandem.graph.symbolic import Sym
from tandem.onnx.writers.registry import writes


@writes("reshape")
def reshape(w, node, x):
    shape = node.op.shape
    if sum(isinstance(d, Sym) for d in shape) == 1 and all(isinstance(d, Sym) or d > 0 for d in shape):
        target = w.constant(np.array([-1 if isinstance(d, Sym) else d for d in shape], np.int64))
        return w.emit("Reshape", [x, target], allowzero=0)
    # A size may be 0 when it runs, which else stands for the size that there is.
    zero = any(isinstance(d, Sym) or d == 0 for d in shape)
    return w.emit("Reshape", [x, w.shape(shape)], allowzero=int(zero))


@writes("permute")
def permute(w, node, x):
    return w.emit("Transpose", [x], perm=list(node.op.axes))


@writes("expand")
def expand(w, node, x):
    return w.emit("Expand", [x, w.shape(node.op.shape)])


@writes("slice")
def slice_(w, node, x):
    op, sizes = node.op, node.inputs[0].shape
    axes = [
        a for a in range(len(sizes))
        if not ((_is(op.starts[a], 0) and _is(op.steps[a], 1) and op.sizes[a] is sizes[a]) or _full(op, sizes, a))
    ]  # fmt: skip
    if not axes:
        return x
    starts, ends, steps = [], [], []
    for a in axes:
        start, step, count = op.starts[a], op.steps[a], op.sizes[a]
        end = start + count * step
        if not isinstance(step, Sym) and step < 0 and not isinstance(end, Sym) and end < 0:
            end = -(2**31)  # before the first element; -1 would be the last
        starts.append(start), ends.append(end), steps.append(step)
    return w.emit("Slice", [x, w.shape(starts), w.shape(ends), w.constant(np.array(axes, np.int64)), w.shape(steps)])


def _is(d, n: int) -> bool:
    return type(d) is int and d == n


def _full(op, sizes, a: int) -> bool:
    known = not isinstance(op.sizes[a], Sym) and not isinstance(sizes[a], Sym)
    return known and op.sizes[a] == sizes[a] and _is(op.starts[a], 0) and _is(op.steps[a], 1)


@writes("embed")
def embed(w, node, x):
    """Zeros with x in them: gaps of steps first, then the ends."""
    op, given = node.op, node.inputs[0]
    zero = w.scalar(0, given.dtype)
    ndim = given.ndim
    shape = list(given.shape)
    for a, step in enumerate(op.steps):
        if _is(step, 1):
            continue
        if isinstance(step, Sym) or step < 0:
            w.refuse(node, "steps that are negative or not known")
        wide = w.emit("Unsqueeze", [x, w.constant(np.array([a + 1], np.int64))])
        pads = np.zeros(2 * (ndim + 1), np.int64)
        pads[ndim + 1 + a + 1] = step - 1
        wide = w.emit("Pad", [wide, w.constant(pads), zero])
        shape[a] = shape[a] * step
        x = w.emit("Reshape", [wide, w.shape(shape)], allowzero=1)
        keep = shape[a] - (step - 1)  # what follows the last element may not fit
        x = w.emit("Slice", [x, w.shape([0]), w.shape([keep]), w.constant(np.array([a], np.int64))])
        shape[a] = keep
    after = [total - start - n for total, start, n in zip(op.shape, op.starts, shape, strict=True)]
    pads = [*op.starts, *after]
    return x if all(_is(p, 0) for p in pads) else w.emit("Pad", [x, w.shape(pads), zero])


@writes("diagonal")
def diagonal(w, node, x):
    lead = node.inputs[0].ndim - 2
    letters = "abcdefgh"[:lead]
    return w.emit("Einsum", [x], equation=f"{letters}ii->{letters}i")


@writes("constant")
def constant(w, node):
    return w.scalar(node.op.value, node.op.dtype)


@writes("size")
def size(w, node):
    value = w.size(node.op.value)
    return w.cast(value, node.op.dtype)


@writes("iota")
def iota(w, node):
    op = node.op
    count = op.shape[op.axis]
    if not isinstance(count, Sym):
        line = w.constant(np.arange(count, dtype=np.int64))
    else:
        line = w.emit("Range", [w.scalar(0, dtypes.int64), w.size(count), w.scalar(1, dtypes.int64)])
    line = w.cast(line, op.dtype)
    if len(op.shape) == 1:
        return line
    line = w.emit("Reshape", [line, w.constant(np.array([-1 if a == op.axis else 1 for a in range(len(op.shape))]))])
    return w.emit("Expand", [line, w.shape(op.shape)])


def _positions(w, indices):
    """Index tensors as rows of the last axis."""
    last = w.constant(np.array([-1], np.int64))
    columns = [w.emit("Unsqueeze", [i, last]) for i in indices]
    return columns[0] if len(columns) == 1 else w.emit("Concat", columns, axis=-1)


@writes("gather")
def gather(w, node, x, *indices):
    if len(indices) == 1:
        return w.emit("Gather", [x, indices[0]], axis=0)
    return w.emit("GatherND", [x, _positions(w, indices)])


@writes("rows")
def rows(w, node, table, index):
    return w.emit("Gather", [table, index], axis=0)


@writes("pick")
def pick(w, node, x, index):
    return w.emit("GatherElements", [x, index], axis=node.op.axis)


@writes("scatter")
def scatter(w, node, base, updates, *indices):
    mode = {"set": "none"}.get(node.op.mode, node.op.mode)
    if mode != "none" and len(indices) == 1 and node.inputs[2].ndim == 1:
        # onnxruntime's threads add to the same elements at once in ScatterND, and lose some; not in ScatterElements
        rest = list(range(1, node.inputs[1].ndim))
        index = w.emit("Unsqueeze", [indices[0], w.shape(rest)]) if rest else indices[0]
        index = w.emit("Expand", [index, w.emit("Shape", [updates])])
        return w.emit("ScatterElements", [base, index, updates], axis=0, reduction=mode)
    return w.emit("ScatterND", [base, _positions(w, indices), updates], reduction=mode)


@writes("concat")
def concat(w, node, *xs):
    return w.emit("Concat", xs, axis=node.op.axis)


@writes("nonzero")
def nonzero(w, node, x):
    return w.emit("NonZero", [x])


@writes("roll")
def roll(w, node, x):
    """The last elements first, on each axis that is rolled."""
    for axis, shift in zip(node.op.axes, node.op.shifts, strict=True):
        n = node.inputs[0].shape[axis]
        if isinstance(n, Sym) or isinstance(shift, Sym):
            x = _rolled(w, x, axis, w.size(n), w.size(shift))
            continue
        cut = w.constant(np.array([n - shift % max(n, 1), shift % max(n, 1)], np.int64))
        first, last = w.emit("Split", [x, cut], 2, axis=axis)
        x = w.emit("Concat", [last, first], axis=axis)
    return x


def _rolled(w, x: str, axis: int, n: str, shift: str) -> str:
    """x rolled by a shift along an axis that may have any size, none too."""
    one = w.shape([1])
    rest = w.emit("Mod", [shift, w.emit("Max", [n, w.scalar(1, dtypes.int64)])])
    cut, end = (w.emit("Reshape", [v, one]) for v in (w.emit("Sub", [n, rest]), n))
    axes = w.shape([axis])
    first, last = w.emit("Slice", [x, w.shape([0]), cut, axes]), w.emit("Slice", [x, cut, end, axes])
    return w.emit("Concat", [last, first], axis=axis)
