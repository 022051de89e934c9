"""One step of recurrent networks, with PyTorch's order of gates and layout of weights: w_ih (gates * H, I), w_hh (gates * H, H)."""

from __future__ import annotations

import tandem.ops as F
from tandem.errors import ShapeError
from tandem.graph.ir import Value
from tandem.ops.define import op
from tandem.ops.movement import take_slice
from tandem.ops.prepare import show_shape


def _gates(
    name: str, count: int, x: Value, h: Value, w_ih: Value, w_hh: Value, b_ih, b_hh
) -> tuple[list[Value], list[Value]]:
    """What each gate gets from the input, and from the hidden state."""
    hidden = h.shape[-1]
    if x.ndim not in (1, 2) or h.ndim != x.ndim or (x.ndim == 2 and x.shape[0] != h.shape[0]):
        raise ShapeError(
            name,
            f"x is {show_shape(x.shape)} and the hidden state {show_shape(h.shape)}; they must be (N, I), (N, H) or (I), (H)",
        )
    for what, w, n in (("w_ih", w_ih, x.shape[-1]), ("w_hh", w_hh, hidden)):
        if w.ndim != 2 or w.shape[0] != hidden * count or w.shape[1] != n:
            raise ShapeError(name, f"{what} is {show_shape(w.shape)} and must be {show_shape((hidden * count, n))}")
    parts = []
    for value in (F.linear(x, w_ih, b_ih), F.linear(h, w_hh, b_hh)):
        axis = value.ndim - 1
        parts.append(
            [value if count == 1 else take_slice(value, {axis: (i * hidden, 1, hidden)}) for i in range(count)]
        )
    return parts[0], parts[1]


@op(method=False)
def rnn_tanh_cell(
    x: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
):
    """tanh(x @ w_ih.T + b_ih + hx @ w_hh.T + b_hh).

    x: (N, I) or (I), hx: (N, H) or (H) -> shape of hx

    >>> td.rnn_tanh_cell(td.ones(1, 1), td.zeros(1, 1), td.ones(1, 1), td.ones(1, 1))
    tensor([[0.7616]])
    """
    (a,), (b,) = _gates("rnn_tanh_cell", 1, x, hx, w_ih, w_hh, b_ih, b_hh)
    return F.tanh(a + b)


@op(method=False)
def rnn_relu_cell(
    x: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
):
    """relu(x @ w_ih.T + b_ih + hx @ w_hh.T + b_hh).

    x: (N, I) or (I), hx: (N, H) or (H) -> shape of hx

    >>> td.rnn_relu_cell(td.ones(1, 1), td.zeros(1, 1), td.ones(1, 1), td.ones(1, 1))
    tensor([[1.]])
    """
    (a,), (b,) = _gates("rnn_relu_cell", 1, x, hx, w_ih, w_hh, b_ih, b_hh)
    return F.relu(a + b)


@op(method=False)
def lstm_cell(
    x: Tensor, hx: Tensors, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
):
    """One step of an LSTM: hx is (hidden, cell), the result the new pair. Gates: input, forget, cell, output.

    x: (N, I) or (I), hidden and cell: (N, H) or (H) -> two of (N, H) or (H)

    >>> h, c = td.lstm_cell(td.ones(1, 1), (td.zeros(1, 1), td.ones(1, 1)), td.ones(4, 1), td.ones(4, 1))
    >>> c
    tensor([[1.2878]])
    """
    if len(hx) != 2:
        raise ShapeError("lstm_cell", f"hx has {len(hx)} tensors; it must be the pair (hidden, cell)")
    h, c = hx
    if not isinstance(h, Value) or not isinstance(c, Value):
        raise ShapeError(
            "lstm_cell",
            "hidden and cell must both be tensors",
            fix="start from zeros: (td.zeros(N, H), td.zeros(N, H))",
        )
    if c.ndim != h.ndim or any(a != b for a, b in zip(c.shape, h.shape, strict=True)):
        raise ShapeError(
            "lstm_cell", f"hidden is {show_shape(h.shape)} and cell {show_shape(c.shape)}; they must be equal"
        )
    of_x, of_h = _gates("lstm_cell", 4, x, h, w_ih, w_hh, b_ih, b_hh)
    i, f, g, o = (a + b for a, b in zip(of_x, of_h, strict=True))
    cell = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
    return F.sigmoid(o) * F.tanh(cell), cell


@op(method=False)
def gru_cell(x: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None):
    """One step of a GRU. Gates: reset, update, new.

    x: (N, I) or (I), hx: (N, H) or (H) -> shape of hx

    >>> td.gru_cell(td.ones(1, 1), td.zeros(1, 1), td.ones(3, 1), td.ones(3, 1))
    tensor([[0.2048]])
    """
    (rx, zx, nx), (rh, zh, nh) = _gates("gru_cell", 3, x, hx, w_ih, w_hh, b_ih, b_hh)
    new = F.tanh(nx + F.sigmoid(rx + rh) * nh)
    return new + F.sigmoid(zx + zh) * (hx - new)
