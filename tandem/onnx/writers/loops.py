"""Branches and loops."""

from __future__ import annotations

import numpy as np

from tandem import dtypes
from tandem.onnx.writers.registry import writes


@writes("cond")
def cond(w, node, which, *operands):
    branches = node.op.branches
    if len(branches) != 2:
        return _choose(w, node, which, operands, 0)
    # branch 1 is the one for True
    truth = which if node.inputs[0].dtype is dtypes.bool_ else w.cast(which, dtypes.bool_)
    bodies = [w.branch(branch, operands) for branch in branches]
    results = [v.dtype for v in node.outputs]
    return w.emit("If", [truth], len(results), True, results, then_branch=bodies[1], else_branch=bodies[0])


def _choose(w, node, which, operands, first: int):
    """One of several branches: a chain of two-way ones."""
    branches = node.op.branches
    if first == len(branches) - 1:
        return w.inline(branches[first], operands)
    same = w.emit("Equal", [which, w.scalar(first, node.inputs[0].dtype)])
    then = w.branch(branches[first], operands)
    rest = w.subgraph(lambda inner: _choose(inner, node, which, operands, first + 1))
    results = [v.dtype for v in node.outputs]
    return w.emit("If", [same], len(results), True, results, then_branch=then, else_branch=rest)


@writes("while")
def while_(w, node, *operands):
    op, carried = node.op, node.op.carried
    state, consts = list(operands[:carried]), list(operands[carried:])
    first = w.inline(op.cond, [*state, *consts, w.scalar(0, dtypes.int64)])[0]
    count = "" if op.maximum is None else w.size(op.maximum)

    def body(inner, iteration, going, *values):
        new = inner.inline(op.body, [*values[:carried], *consts, iteration])
        after = inner.emit("Add", [iteration, inner.scalar(1, dtypes.int64)])
        return [*inner.inline(op.cond, [*new, *consts, after]), *new, after]

    types = [v.type for v in node.outputs]
    graph = w.loop_body(body, types[:carried], extra=1)
    results = [*(t.dtype for t in types[:carried]), dtypes.int64]
    return w.emit("Loop", [count, first, *state, w.scalar(0, dtypes.int64)], carried + 1, True, results, body=graph)


@writes("scan")
def scan(w, node, *operands):
    op = node.op
    c, x = op.carried, op.scanned
    state, scanned, consts = list(operands[:c]), list(operands[c : c + x]), list(operands[c + x :])
    length = w.size(op.length)
    last = w.emit("Sub", [length, w.scalar(1, dtypes.int64)])

    def body(inner, iteration, going, *state):
        at = inner.emit("Sub", [last, iteration]) if op.reverse else iteration
        rows = [inner.emit("Gather", [s, at], axis=0) for s in scanned]
        results = inner.inline(op.body, [*state, *rows, *consts, at])
        return [inner.emit("Identity", [going]), *results]

    types = [v.type for v in node.op.body.outputs]
    graph = w.loop_body(body, types[:c], stacked=types[c:])
    given = [length, w.scalar(True, dtypes.bool_), *state]
    results = w.emit("Loop", given, len(types), True, [t.dtype for t in types], body=graph)
    if not op.reverse:
        return results
    flip = [w.constant(np.array([v], np.int64)) for v in (-1, -(2**31), 0, -1)]
    return (*results[:c], *(w.emit("Slice", [r, *flip]) for r in results[c:]))
