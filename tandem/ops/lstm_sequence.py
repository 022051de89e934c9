"""The steps of an LSTM over a sequence as one operator, for devices, where a loop of small kernels costs most of the time.

Note [LSTM as one operator]
What the input gives to the gates is one product for all steps, done before; so are, backward, the gradients of the weights. Left
for each step are the product with the hidden state and one pointwise kernel. The activated gates and the cells are kept for
backward, so that it needs no product twice. Cells are kept in float32 (float64 for float64) whatever the type of the gates.
"""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.graph.ir import Type
from tandem.graph.symbolic import hint
from tandem.ops import rules
from tandem.ops.define import LibraryOp, op, register
from tandem.ops.prepare import cast


def _wide(dtype: dtypes.DType) -> dtypes.DType:
    return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32


def _order(steps: int, reverse: bool):
    return reversed(range(steps)) if reverse else range(steps)


def _count(n) -> int:
    """The number of steps of this call; where sizes are symbolic, the plan is for this number only."""
    return next(k for k in (hint(n),) if n == k)


def _at(x, t: int):
    """x[t]"""
    ones = (1,) * x.ndim
    return F.Reshape(x.shape[1:])(F.Slice((t, *(0,) * (x.ndim - 1)), ones, (1, *x.shape[1:]))(x))


def _before(states, first, reverse: bool):
    """The state that each step began with: states (T, N, H) moved by one, with the first state (N, H) in front."""
    steps = states.shape[0]
    rest = F.Slice((1 if reverse else 0, 0, 0), (1, 1, 1), (steps - 1, *states.shape[1:]))(states)
    return F.concat([rest, F.unsqueeze(first, 0)] if reverse else [F.unsqueeze(first, 0), rest], 0)


@register
class LSTMSequence(LibraryOp):
    """gates (T, N, 4 H), as the input gives them, h (N, H), c (N, H), w (4 H, H) -> hidden states (T, N, H), cells (T, N, H),
    activated gates (T, N, 4 H)"""

    name = "lstm_sequence"
    routine = "lstm_sequence"
    only_on = "cuda"
    low_precision = True
    sparse_grads = True
    reverse: bool
    takes = "F[t,n,g] F[n,h] ?[n,h] F[g,h]"

    def infer(self, gates: Type, h: Type, c: Type, w: Type):
        shape = (*gates.shape[:2], w.shape[1])
        return gates.with_shape(shape), Type(_wide(gates.dtype), shape), gates

    def rule(self, gates: Type, h: Type, c: Type, w: Type):
        rules.need(self, w.shape[0] == 4 * w.shape[1], f"w is {w!r}; there are 4 gates")

    def composed(self, gates, h, c, w):
        """Written out step by step, where there is no routine."""
        wide = _wide(gates.dtype)
        steps = _count(gates.shape[0])
        hidden, cells, activated = [None] * steps, [None] * steps, [None] * steps
        c = cast(c, wide)
        for t in _order(steps, self.reverse):
            total = cast(_at(gates, t), wide) + cast(F.matmul(h, F.matrix_transpose(w)), wide)
            i, f, g, o = F.chunk(total, 4, -1)
            i, f, g, o = F.sigmoid(i), F.sigmoid(f), F.tanh(g), F.sigmoid(o)
            c = f * c + i * g
            h = cast(o * F.tanh(c), gates.dtype)
            hidden[t], cells[t], activated[t] = h, c, cast(F.concat([i, f, g, o], -1), gates.dtype)
        return F.stack(hidden, 0), F.stack(cells, 0), F.stack(activated, 0)

    def grad(self, g, gates, h, c, w, *, out, vjp):
        hidden, cells, activated = out
        g_hidden, g_cells, g_activated = g
        if g_activated is not None:  # second derivatives: only the gradient reads the activated gates
            return vjp(self.composed, [gates, h, c, w], list(g))
        if g_hidden is None and g_cells is None:
            return None, None, None, None
        if g_hidden is None:
            g_hidden = F.zeros_like(hidden)
        more = () if g_cells is None else (g_cells,)
        d_gates, dh, dc = LSTMSequenceBackward(self.reverse)(g_hidden, activated, cells, c, w, *more)
        rows = d_gates.shape[0] * d_gates.shape[1]
        begun = F.Reshape((rows, h.shape[1]))(_before(hidden, h, self.reverse))
        dw = F.Matmul()(F.matrix_transpose(F.Reshape((rows, w.shape[0]))(d_gates)), begun)
        return d_gates, dh, dc, dw


@register
class LSTMSequenceBackward(LibraryOp):
    """g of the hidden states, activated gates, cells, c, w[, g of the cells] -> gradients of gates (T, N, 4 H), h, c"""

    name = "lstm_sequence_backward"
    routine = "lstm_sequence_backward"
    only_on = "cuda"
    reverse: bool
    takes = "F[t,n,h] F[t,n,g] ?[t,n,h] ?[n,h] F[g,h] ?[t,n,h]?"

    def infer(self, g: Type, activated: Type, cells: Type, c: Type, w: Type, *g_cells: Type):
        return activated, g.with_shape(c.shape), c

    def rule(self, g: Type, activated: Type, cells: Type, c: Type, w: Type, *g_cells: Type):
        rules.need(self, w.shape[0] == 4 * w.shape[1], f"w is {w!r}; there are 4 gates")
        rules.allowed(self, cells.dtype is _wide(g.dtype), f"cells are {cells.dtype}")

    def composed(self, g, activated, cells, c, w, *g_cells):
        wide = cells.dtype
        steps = _count(g.shape[0])
        dh, dc = cast(F.zeros_like(c), wide), cast(F.zeros_like(c), wide)
        before = _before(cells, cast(c, wide), self.reverse)
        made = [None] * steps
        for t in _order(steps, not self.reverse):
            i, f, u, o = F.chunk(cast(_at(activated, t), wide), 4, -1)
            tanh = F.tanh(_at(cells, t))
            dh = dh + cast(_at(g, t), wide)
            dc = dc + dh * o * (1 - tanh * tanh)
            if g_cells:
                dc = dc + _at(g_cells[0], t)
            of_i, of_f = dc * u * i * (1 - i), dc * _at(before, t) * f * (1 - f)
            of_u, of_o = dc * i * (1 - u * u), dh * tanh * o * (1 - o)
            made[t] = cast(F.concat([of_i, of_f, of_u, of_o], -1), activated.dtype)
            dc = dc * f
            dh = cast(F.matmul(made[t], w), wide)
        return F.stack(made, 0), cast(dh, g.dtype), cast(dc, c.dtype)

    def grad(self, g, *inputs, vjp):
        # The formula written out: exact, of any order; only second derivatives pay for its length.
        return vjp(self.composed, list(inputs), list(g))


@op(hidden=True)
def lstm_sequence(gates: Tensor, h: Tensor, c: Tensor, w_hh: Tensor, reverse):
    """gates: what the input gives, (T, N, 4 * H), in the order input, forget, cell, output; biases included. Gives the hidden
    states and the cells of all steps."""
    hidden, cells, _ = LSTMSequence(bool(reverse))(gates, h, c, w_hh)
    return hidden, cells
