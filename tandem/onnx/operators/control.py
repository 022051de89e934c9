"""Branches and loops.

A condition that is known while the graph runs (a host value) chooses in Python. One that is computed is read, which ends a program
that is being captured; in a compiled function the rest goes on as the next program. Where a graph is made that must stand by itself
(td.export, td.onnx.save) nothing can be read: both branches go into it, and must give results of the same types.
"""

from __future__ import annotations

import numpy as np

import tandem.ops as ops
from tandem import _runtime
from tandem.control.body import inside_body
from tandem.control.branches import cond
from tandem.control.loops import while_loop
from tandem.onnx.registry import onnx_op
from tandem.onnx.types import to_tensor


def _truth(value) -> bool:
    return bool(value.item()) if isinstance(value, _runtime.Tensor) else bool(np.asarray(value).reshape(()))


@onnx_op("If", scoped=True)
def if_(node, scope, condition):
    if isinstance(condition, _runtime.Tensor) and inside_body():
        shapes: list[tuple] = []

        def branch(graph) -> tuple:
            results = [to_tensor(v) for v in scope.run(graph, [])]
            if shapes:  # files mix scalars with tensors of one element
                results = [v.reshape(s) if v.numel() == 1 else v for v, s in zip(results, shapes, strict=True)]
            shapes[:] = [v.shape if v.numel() == 1 else (v.numel(),) for v in results]
            return tuple(results)

        return cond(condition.reshape(()), *(lambda g=node[name]: branch(g) for name in ("then_branch", "else_branch")))
    return tuple(scope.run(node["then_branch" if _truth(condition) else "else_branch"], []))


@onnx_op("Loop", scoped=True)
def loop(node, scope, trips, condition, *state):
    body = node["body"]
    state, scanned = list(state), [[] for _ in range(len(body.outputs) - 1 - len(state))]
    limit = None if trips is None else int(np.asarray(_host(trips)).reshape(()))
    going, i = condition is None or _truth(condition), 0
    while going and (limit is None or i < limit):
        results = scope.run(body, [np.array(i, np.int64), np.array(True), *state])
        going, *rest = results
        state, new = rest[: len(state)], rest[len(state) :]
        for column, value in zip(scanned, new, strict=True):
            column.append(value)
        i += 1
        if isinstance(going, _runtime.Tensor) and inside_body() and not scanned and (limit is None or i < limit):
            return _repeated(scope, body, going, i, limit, state)  # nothing can be read here
        going = _truth(going)
    return (*state, *(_stack(column) for column in scanned))


def _repeated(scope, body, going, i: int, limit: int | None, state: list) -> tuple:
    """The rest of a loop whose condition is computed, from iteration i on: what is computed keeps its types from here on."""
    state = [to_tensor(v) for v in state]

    def step(going, i, *state):
        going, *results = (to_tensor(v) for v in scope.run(body, [i, np.array(True), *state]))
        results = [
            v.reshape(s.shape) if v.numel() == 1 == s.numel() else v for v, s in zip(results, state, strict=True)
        ]
        return (going.reshape(()), i + 1, *results)

    most = None if limit is None or limit - i >= 2**31 else limit - i
    start = (going.reshape(()), to_tensor(np.array(i, np.int64)), *state)
    _, _, *results = while_loop(lambda going, *_: going, step, start, most)
    return tuple(results)


def _host(value):
    return value.item() if isinstance(value, _runtime.Tensor) else value


def _stack(values: list, axis: int = 0):
    if not values:
        return np.zeros((0,), np.float32)
    if all(isinstance(v, np.ndarray) for v in values):
        return np.stack(values, axis)
    return ops.stack([to_tensor(v) for v in values], axis=axis)


@onnx_op("Scan", since=8, scoped=True)
def scan_batched(node, scope, lengths, *given):
    """Version 8: axis 0 of everything is the batch, axis 1 of what is scanned the time."""
    rows = []
    for b in range(int(given[0].shape[0])):
        rows.append(_scan(node, scope, [x[b] for x in given], node.get("directions", None), None, None, None))
    return tuple(_stack(list(column)) for column in zip(*rows, strict=True))


@onnx_op("Scan", since=9, scoped=True)
def scan(node, scope, *given):
    return _scan(
        node, scope, list(given), node.get("scan_input_directions"), node.get("scan_input_axes"),
        node.get("scan_output_directions"), node.get("scan_output_axes"),
    )  # fmt: skip


def _scan(node, scope, given, directions, axes, out_directions, out_axes):
    body, count = node["body"], node["num_scan_inputs"]
    state, scanned = given[: len(given) - count], given[len(given) - count :]
    axes, directions = axes or [0] * count, directions or [0] * count
    steps = int(scanned[0].shape[axes[0]])
    columns = [[] for _ in range(len(body.outputs) - len(state))]
    for t in range(steps):
        now = [_select(x, a, steps - 1 - t if d else t) for x, a, d in zip(scanned, axes, directions, strict=True)]
        results = scope.run(body, [*state, *now])
        state = results[: len(state)]
        for column, value in zip(columns, results[len(state) :], strict=True):
            column.append(value)
    out_axes, out_directions = out_axes or [0] * len(columns), out_directions or [0] * len(columns)
    stacked = [_stack(c[::-1] if d else c, a) for c, a, d in zip(columns, out_axes, out_directions, strict=True)]
    return (*state, *stacked)


def _select(x, axis: int, index: int):
    return np.take(x, index, axis) if isinstance(x, np.ndarray) else ops.select(x, axis, index)
