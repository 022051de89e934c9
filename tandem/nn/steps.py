"""What recurrent layers compute: one step of each kind, and how sequences come apart into steps."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import NamedTuple

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.autograd.function import Function
from tandem.control.loops import native_scan
from tandem.ops.define import op


@op(hidden=True)
def rnn_step(gates: Tensor, h: Tensor, w_hh: Tensor, b_hh: Tensor | None, nonlinearity):
    """gates: what the input gives, (N, H)."""
    total = gates + F.linear(h, w_hh, b_hh)
    return F.tanh(total) if nonlinearity == "tanh" else F.relu(total)


@op(hidden=True)
def lstm_step(gates: Tensor, h: Tensor, c: Tensor, w_hh: Tensor, b_hh: Tensor | None, w_hr: Tensor | None):
    """gates: what the input gives, (N, 4 * H), in the order input, forget, cell, output. w_hr projects the hidden state."""
    i, f, g, o = F.chunk(gates + F.linear(h, w_hh, b_hh), 4, -1)
    cell = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
    hidden = F.sigmoid(o) * F.tanh(cell)
    return (hidden if w_hr is None else F.linear(hidden, w_hr)), cell


@op(hidden=True)
def gru_step(gates: Tensor, h: Tensor, w_hh: Tensor, b_hh: Tensor | None):
    """gates: what the input gives, (N, 3 * H), in the order reset, update, new."""
    rx, zx, nx = F.chunk(gates, 3, -1)
    rh, zh, nh = F.chunk(F.linear(h, w_hh, b_hh), 3, -1)
    new = F.tanh(nx + F.sigmoid(rx + rh) * nh)
    return new + F.sigmoid(zx + zh) * (h - new)


class Cut(Function):
    """Parts of x along the first axis, whose gradients are put together again in one piece.

    Slices taken one by one would each give a gradient as large as x.
    """

    @staticmethod
    def forward(ctx, x, sizes):
        ctx.sizes, ctx.rest = sizes, x.shape[1:]
        ctx.dtype = x.dtype
        parts, start = [], 0
        for n in sizes:
            parts.append(x[start : start + n])
            start += n
        return tuple(parts)

    @staticmethod
    def backward(ctx, *grads):
        full = [
            F.full((n, *ctx.rest), 0, dtype=ctx.dtype, device=next(x.device for x in grads if x is not None))
            if g is None
            else g
            for n, g in zip(ctx.sizes, grads, strict=True)
        ]
        return F.concat(full, 0), None


def on_device(x) -> bool:
    """Whether x is a tensor on a CUDA device; what stands for a tensor in a graph under construction is not."""
    return isinstance(x, _runtime.Tensor) and _runtime.device_index(x) > 0


def _as_they_began(after: tuple, before: tuple) -> tuple:
    """States in the dtypes that they have from the first step on: where td.autocast is on, a step may give 16 bits."""
    return tuple(a if a.dtype is b.dtype else F.astype(a, b.dtype) for a, b in zip(after, before, strict=True))


def scan_steps(step, gates, steps: int, state: tuple, reverse: bool) -> tuple:
    """Runs step(part, *state) -> state over `steps` parts of equal size, as one native loop, in eager code too. Gives the first
    component of each state, one part below the other, and the last states."""
    rows = gates.shape[0] // steps
    parts = F.reshape(gates, (steps, rows, *gates.shape[1:]))
    if getattr(gates, "is_meta", False):  # there is nothing to run
        outputs, state = run_steps(step, list(parts), state, reverse)
        return F.concat(outputs, 0), state

    def once(before, part):
        state = _as_they_began(tuple(step(part, *before)), before)
        return state, state[0]

    state, outputs = native_scan(once, tuple(state), parts, reverse)
    return F.reshape(outputs, (steps * rows, *outputs.shape[2:])), state


class _Rows(NamedTuple):
    """Sequences one after the other in as few rows as the longest one's length allows.

    Lists over positions (step, row): where a position's gates are, whether a state begins there, and whose; and over what comes
    out: where the parts' rows are, and where sequences end.
    """

    count: int
    gates: list
    begins: list
    owners: list
    outputs: list
    ends: list


def _arrange(sizes: list[int], reverse: bool) -> _Rows:
    """The sequences of parts of these sizes, which fall, in rows: each in the first one with room for it."""
    steps, starts = len(sizes), [0, *accumulate(sizes)]
    lengths = [0] * sizes[0]
    for length, (n, after) in enumerate(pairwise([*sizes, 0]), 1):
        lengths[after:n] = [length] * (n - after)
    used: list[int] = []
    where = []
    for length in lengths:
        row = next((r for r, n in enumerate(used) if n + length <= steps), len(used))
        if row == len(used):
            used.append(0)
        where.append((row, used[row]))
        used[row] += length
    rows = len(used)
    gates, begins, owners, ends = [0] * (steps * rows), [True] * (steps * rows), [0] * (steps * rows), []
    outputs = [0] * starts[-1]
    for i, (length, (row, first)) in enumerate(zip(lengths, where, strict=True)):
        places = range(first * rows + row, (first + length) * rows + row, rows)
        own = [start + i for start in starts[:length]]
        gates[places.start : places.stop : rows] = own
        begins[places.start : places.stop : rows] = [False] * length
        begin, end = (places[-1], places[0]) if reverse else (places[0], places[-1])
        begins[begin] = True
        owners[begin] = i
        ends.append(end)
        for part, place in zip(own, places, strict=True):
            outputs[part] = place
    return _Rows(rows, gates, begins, owners, outputs, ends)


def joined_steps(step, gates, sizes: list[int], state: tuple | None, like: tuple, reverse: bool) -> tuple:
    """Runs step(part, *state) -> state over parts of these sizes, which fall, as one native loop. Gives what scan_steps does.

    state: what sequences begin with, None for zeros like `like`. Sequences lie one after the other in rows of one length
    (_arrange), and where another one begins, the row's state begins anew. Which row of gates belongs where is data, so that
    one program serves sequences of all lengths.
    """
    steps, device = len(sizes), gates.device
    rows = _arrange(sizes, reverse)
    tensor = lambda data, dtype=dtypes.int64: _runtime.from_data(data, dtype).to(device)
    parted = lambda x: F.reshape(x, (steps, rows.count, *x.shape[1:]))
    begins = tensor(rows.begins, dtypes.bool_).reshape(steps, rows.count, 1)
    parts = parted(F.index_select(gates, 0, tensor(rows.gates)))
    first = () if state is None else tuple(parted(F.index_select(s, 0, tensor(rows.owners))) for s in state)

    def once(before, given):
        part, begin, *own = given
        own = own or [F.zeros_like(s) for s in before]
        after = step(part, *(F.where(begin, a, b) for a, b in zip(own, before, strict=True)))
        after = _as_they_began(tuple(after), before)
        return after, after

    zeros = tuple(F.full((rows.count, s.shape[-1]), 0, dtype=s.dtype, device=device) for s in like)
    _, outputs = native_scan(once, zeros, (parts, begins, *first), reverse)
    flat = [F.reshape(o, (steps * rows.count, o.shape[-1])) for o in outputs]
    ends = tensor(rows.ends)
    return F.index_select(flat[0], 0, tensor(rows.outputs)), tuple(F.index_select(o, 0, ends) for o in flat)


def run_steps(step, parts: list, state: tuple, reverse: bool) -> tuple[list, tuple]:
    """Runs step(part, *state) -> state over the parts. Gives the first component of each state, in the order of parts, and the
    last states.

    Parts may have fewer rows than those before them (sequences that ended): their states are kept as they are then.
    """
    outputs: list = [None] * len(parts)
    if not reverse:
        ended: list[tuple] = []
        for t, part in enumerate(parts):
            rows = part.shape[0]
            if rows < state[0].shape[0]:
                ended.append(tuple(s[rows:] for s in state))
                state = tuple(s[:rows] for s in state)
            state = step(part, *state)
            outputs[t] = state[0]
        for rest in reversed(ended):
            state = tuple(F.concat([s, r], 0) for s, r in zip(state, rest, strict=True))
        return outputs, state
    start, state = state, tuple(s[: parts[-1].shape[0]] for s in state)
    for t in range(len(parts) - 1, -1, -1):
        rows, have = parts[t].shape[0], state[0].shape[0]
        if rows > have:
            state = tuple(F.concat([s, i[have:rows]], 0) for s, i in zip(state, start, strict=True))
        state = step(parts[t], *state)
        outputs[t] = state[0]
    return outputs, state
