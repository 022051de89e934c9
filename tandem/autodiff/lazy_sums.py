"""Weight gradients as summands, which the runtime adds up once for many records.

See Note [Lazy weight gradients] in src/autograd/lazy_sum.h.
"""

from __future__ import annotations

import enum

import tandem.ops as F
from tandem.autodiff.partition import extract
from tandem.graph.ir import Builder, Graph, Value
from tandem.ops.arithmetic import Add, Copy
from tandem.ops.create import Constant
from tandem.ops.index import Scatter
from tandem.ops.matmul import Matmul
from tandem.ops.movement import Expand, Permute, Reshape


class Summand(enum.IntEnum):
    """As in src/plan/plan.h."""

    MATMUL = 0  # left (r, m), right (r, n): left.T @ right
    ROWS = 1  # index (r), updates (r, *s): zeros with the updates added at these rows


Summands = list[tuple[Summand, Value, Value]]


def lazy_backward(backward: Graph) -> tuple[Graph | None, list[list[int]]]:
    """The same backward graph, with summands in place of gradients that are sums of matmuls or rows; and the kinds of each
    gradient's summands, none where it is given as it is. No graph where all are."""
    summands = [_summands_of(v) for v in backward.outputs]
    if not any(summands):
        return None, []
    wanted = []
    for value, own in zip(backward.outputs, summands, strict=True):
        wanted += [v for _, *pair in own for v in pair] if own else [value]
    graph = extract(backward, [], backward.inputs, [], wanted, set(backward.inputs))
    graph.name = backward.name + "_lazy"
    outputs = iter(graph.outputs)
    made = []
    with Builder(graph):
        for own in summands:
            if not own:
                made.append(next(outputs))
            for kind, *_ in own:
                a, b = _reshaped_once(next(outputs)), _reshaped_once(next(outputs))
                made += _flat_rows(a, b) if kind is Summand.ROWS else (a, b)
    graph.outputs = made
    return graph, [[int(kind) for kind, *_ in own] for own in summands]


def _reshaped_once(value: Value) -> Value:
    """The same elements, as a view of what was reshaped several times: passes would copy it to make it one."""
    base = value
    while isinstance(base.op, Reshape):
        base = base.node.inputs[0]
    if base.ndim == value.ndim and all(a is b or a == b for a, b in zip(base.shape, value.shape, strict=True)):
        return base
    return value if base is value else F.Reshape(value.shape)(base)


def _flat_rows(index: Value, updates: Value) -> tuple[Value, Value]:
    rows = F.reshape(index, (-1,))
    return rows, F.reshape(updates, (rows.shape[0], *updates.shape[index.ndim :]))


def _summands_of(value: Value | None) -> Summands:
    """What the value is a sum of; empty where a summand is anything else."""
    if value is None:
        return []
    if isinstance(value.op, Add):
        a, b = map(_summands_of, value.node.inputs)
        return a + b if a and b else []
    return _matmul_of(value) or _rows_of(value)


def _transposed(value: Value) -> Value | None:
    return value.node.inputs[0] if isinstance(value.op, Permute) and value.op.axes == (1, 0) else None


def _matmul_of(value: Value) -> Summands:
    inner = _transposed(value)
    swapped = inner is not None
    matmul = inner if swapped else value
    if not isinstance(matmul.op, Matmul) or matmul.ndim != 2:
        return []
    left, right = matmul.node.inputs
    rows = _transposed(left)
    if rows is None or right.ndim != 2:
        return []
    return [(Summand.MATMUL, right, rows) if swapped else (Summand.MATMUL, rows, right)]


def _rows_of(value: Value) -> Summands:
    if not isinstance(value.op, Scatter) or value.op.mode != "add" or len(value.node.inputs) != 3:
        return []
    base, updates, index = value.node.inputs
    return [(Summand.ROWS, index, updates)] if _is_zeros(base) else []


def _is_zeros(value: Value) -> bool:
    while isinstance(value.op, (Copy, Expand, Reshape)):
        (value,) = value.node.inputs
    return isinstance(value.op, Constant) and value.op.value == 0
