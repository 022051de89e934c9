"""All steps of a recurrent layer as one operator, for inference on the CPU: Note [Recurrent layers] in library/recurrence.cc."""

from __future__ import annotations

import tandem.ops as F
from tandem import dtypes
from tandem.errors import ShapeError
from tandem.graph.ir import Type, Value
from tandem.graph.symbolic import hint
from tandem.ops import rules
from tandem.ops.define import LibraryOp, op, register
from tandem.ops.prepare import show_shape

# Numbers of the enum Recurrence in src/library/kernels/kernels.h, and how many gates each has.
_KINDS = {"lstm": (0, 4), "gru": (1, 3), "tanh": (2, 1), "relu": (3, 1)}


@register
class Recurrence(LibraryOp):
    """gates: (T, N, D * G * H), as the input gives them; h: (D, N, H), w: (D, G * H, H), of an LSTM c: (D, N, H), of a GRU
    bias: (D, G * H), if `ends` lengths: (N) -> hidden states (T, D, N, H), the last ones (D, N, H)[, the last cells (D, N, H)]

    order: where the gates lie: input, forget, cell, output; reset, update, new. reverse: from the end to the start, as the second
    of two directions always goes. Sequences that have ended keep their state; their hidden states are 0.
    """

    name = "recurrence"
    routine = "recurrence"
    only_on = "cpu"
    kind: str
    order: tuple
    reverse: bool
    ends: bool
    takes = "f32[t,n,q] f32[d,n,h] f32[d,g,h] ?[*]..."

    def infer(self, gates: Type, h: Type, w: Type, *rest: Type):
        hidden = gates.with_shape((gates.shape[0], *h.shape))
        return (hidden, h, h) if self.kind == "lstm" else (hidden, h)

    def rule(self, gates: Type, h: Type, w: Type, *rest: Type):
        rules.allowed(self, self.kind in _KINDS, f"kind is {self.kind!r}; it must be one of {list(_KINDS)}")
        count = _KINDS[self.kind][1]
        directions, rows, hidden = h.shape
        rules.allowed(self, sorted(self.order) == list(range(count)), f"order is {self.order}; there are {count} gates")
        rules.need(self, directions == 1 or directions == 2, f"h is {h!r}; there are one or two directions")
        fits = w.shape[1] == count * hidden and gates.shape[2] == directions * count * hidden
        rules.need(self, fits, f"gates are {gates!r}, w is {w!r}; there are {count} gates of {hidden} units")
        wanted = {"lstm": [("f32", h.shape)], "gru": [("f32", (directions, count * hidden))]}.get(self.kind, [])
        wanted += [("i64", (rows,))] if self.ends else []
        alike = len(rest) == len(wanted) and all(
            v.dtype.short == short and len(v.shape) == len(shape) and all(a == b for a, b in zip(v.shape, shape, strict=True))
            for v, (short, shape) in zip(rest, wanted, strict=True)
        )  # fmt: skip
        rules.need(self, alike, f"operands after w are {rest}; they must be {wanted}")

    def attributes(self, *types):
        return (_KINDS[self.kind][0], int(self.reverse), int(self.ends), *self.order), ()

    def composed(self, gates, h, w, *rest):
        """Written out step by step, where there is no routine; the plan is for this number of steps."""
        steps = next(n for n in (hint(gates.shape[0]),) if gates.shape[0] == n)
        directions = h.shape[0] if isinstance(h.shape[0], int) else hint(h.shape[0])
        lengths = rest[-1] if self.ends else None
        outputs, finals = [], []
        for d in range(directions):
            state = [h[d], rest[0][d]] if self.kind == "lstm" else [h[d]]
            bias = rest[0][d] if self.kind == "gru" else None
            width = w.shape[1]
            given = gates[:, :, d * width : (d + 1) * width]
            column: list = [None] * steps
            for t in reversed(range(steps)) if self.reverse or d == 1 else range(steps):
                new = self._step(given[t], state, F.matrix_transpose(w[d]), bias)
                column[t] = new[0]
                if lengths is not None:
                    inside = F.reshape(lengths > t, (lengths.shape[0], 1))
                    column[t] = F.where(inside, new[0], F.zeros_like(new[0]))
                    new = [F.where(inside, a, b) for a, b in zip(new, state, strict=True)]
                state = new
            outputs.append(F.stack(column, 0))
            finals.append(state)
        return F.stack(outputs, 1), *(F.stack([f[k] for f in finals], 0) for k in range(len(finals[0])))

    def _step(self, given, state: list[Value], w, bias) -> list[Value]:
        h = state[0]
        kept = F.matmul(h, w)
        if self.kind == "lstm":
            parts = F.chunk(given + kept, 4, -1)
            i, f, g, o = (parts[k] for k in self.order)
            cell = F.sigmoid(f) * state[1] + F.sigmoid(i) * F.tanh(g)
            return [F.sigmoid(o) * F.tanh(cell), cell]
        if self.kind == "gru":
            given, kept = F.chunk(given, 3, -1), F.chunk(kept + bias, 3, -1)
            (rx, zx, nx), (rh, zh, nh) = ([parts[k] for k in self.order] for parts in (given, kept))
            new = F.tanh(nx + F.sigmoid(rx + rh) * nh)
            return [new + F.sigmoid(zx + zh) * (h - new)]
        return [F.tanh(given + kept) if self.kind == "tanh" else F.relu(given + kept)]

    def grad(self, g, *inputs, vjp):
        # The steps written out: layers that are trained do not come here.
        count = len(inputs) - int(self.ends)
        floats = inputs[:count]
        return *vjp(lambda *given: self.composed(*given, *inputs[count:]), list(floats), list(g)), *(None,) * self.ends


@op(hidden=True)
def recurrence(gates: Tensor, h: Tensor, w: Tensor, more: Tensor | None, lengths: Tensor | None, kind, order, reverse):
    """more: the cells of an LSTM, the bias of a GRU's state. float32. Gives hidden states (T, D, N, H) and the last states."""
    if gates.ndim != 3 or h.ndim != 3 or w.ndim != 3 or h.shape[1] != gates.shape[1] or w.shape[2] != h.shape[2]:
        raise ShapeError(
            str(kind),
            f"gates are {show_shape(gates.shape)}, states {show_shape(h.shape)}, weights {show_shape(w.shape)}",
        )
    if lengths is not None and (lengths.ndim != 1 or lengths.shape[0] != gates.shape[1]):
        raise ShapeError(
            str(kind),
            f"lengths are {show_shape(lengths.shape)}; there must be one for each of {gates.shape[1]} sequences",
        )
    rest = [x for x in (more, lengths) if x is not None]
    if lengths is not None:
        rest[-1] = F.astype(lengths, dtypes.int64)
    return Recurrence(str(kind), tuple(order), bool(reverse), lengths is not None)(gates, h, w, *rest)
