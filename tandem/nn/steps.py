"""What recurrent layers compute: one step of each kind, and how sequences come apart into steps."""

from __future__ import annotations

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


def scan_steps(step, gates, steps: int, state: tuple, reverse: bool) -> tuple:
    """Runs step(part, *state) -> state over `steps` parts of equal size, as one native loop, in eager code too. Gives the first
    component of each state, one part below the other, and the last states."""
    rows = gates.shape[0] // steps
    parts = F.reshape(gates, (steps, rows, *gates.shape[1:]))

    def once(state, part):
        state = step(part, *state)
        return state, state[0]

    state, outputs = native_scan(once, tuple(state), parts, reverse)
    return F.reshape(outputs, (steps * rows, *outputs.shape[2:])), state


def masked_steps(step, gates, sizes: list[int], state: tuple, reverse: bool) -> tuple:
    """Runs step(part, *state) -> state over parts of these sizes, which fall, as one native loop over parts of the first one's
    size. Gives what scan_steps does.

    Sizes are data here: which row of gates belongs where, and which of a part's rows go on, are tensors, so that one program serves
    sequences of all lengths. It costs steps on rows that have ended.
    """
    steps, most = len(sizes), sizes[0]
    device = gates.device
    going = [i < n for n in sizes for i in range(most)]
    places, row = [], 0
    for n in sizes:
        places += [row + min(i, n - 1) for i in range(most)]
        row += n
    flags = _runtime.from_data(going, dtypes.bool_).to(device).reshape(steps, most, 1)
    spread = F.index_select(gates, 0, _runtime.from_data(places, dtypes.int64).to(device))
    parts = F.reshape(spread, (steps, most, *gates.shape[1:]))

    def once(state, given):
        part, flag = given
        after = step(part, *state)
        return tuple(F.where(flag, a, s) for a, s in zip(after, state, strict=True)), after[0]

    state, outputs = native_scan(once, tuple(state), (parts, flags), reverse)
    rows = _runtime.from_data([t * most + i for t, n in enumerate(sizes) for i in range(n)], dtypes.int64).to(device)
    return F.index_select(F.reshape(outputs, (steps * most, *outputs.shape[2:])), 0, rows), state


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
