"""RNN, GRU, LSTM, with every option of the standard: directions, lengths, peepholes, clips, activations."""

from __future__ import annotations

import tandem.nn.functional as F
import tandem.ops as ops
from tandem import _runtime
from tandem.dtypes import float32
from tandem.onnx.registry import onnx_op
from tandem.ops.recurrence import recurrence
from tandem.tensors.constructors import zeros

_ACTIVATIONS = {
    "Sigmoid": lambda x, a, b: ops.sigmoid(x),
    "Tanh": lambda x, a, b: ops.tanh(x),
    "Relu": lambda x, a, b: ops.relu(x),
    "Affine": lambda x, a, b: (1.0 if a is None else a) * x + (0.0 if b is None else b),
    "LeakyRelu": lambda x, a, b: F.leaky_relu(x, 0.01 if a is None else a),
    "ThresholdedRelu": lambda x, a, b: ops.where(x > (1.0 if a is None else a), x, 0),
    "ScaledTanh": lambda x, a, b: (1.0 if a is None else a) * ops.tanh((1.0 if b is None else b) * x),
    "HardSigmoid": lambda x, a, b: ops.clip((0.2 if a is None else a) * x + (0.5 if b is None else b), 0, 1),
    "Elu": lambda x, a, b: F.elu(x, 1.0 if a is None else a),
    "Softsign": lambda x, a, b: F.softsign(x),
    "Softplus": lambda x, a, b: F.softplus(x),
}


class _Layer:
    """What the three kinds share: the loop over time in each direction."""

    def __init__(self, node, default: list[str]):
        self.node = node
        self.direction = node.get("direction", "forward")
        self.count = 2 if self.direction == "bidirectional" else 1
        names = node.get("activations", default * self.count)
        self.standard = list(names) == default * self.count
        alphas, betas = list(node.get("activation_alpha", [])), list(node.get("activation_beta", []))
        each = len(names) // self.count
        made = []
        for name in names:
            alpha = (
                alphas.pop(0) if alphas and name not in ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus") else None
            )
            beta = betas.pop(0) if betas and name in ("Affine", "ScaledTanh", "HardSigmoid") else None
            made.append(lambda x, f=_ACTIVATIONS[name], a=alpha, b=beta: f(x, a, b))
        self.activations = [made[i * each : (i + 1) * each] for i in range(self.count)]

    def plain(self, x) -> bool:
        """Whether all steps may run as one operator (ops/recurrence.py): float32 without gradients, nothing but the standard's
        own activations."""
        return self.standard and self.node.get("clip") is None and x.dtype is float32 and not _runtime.grad_enabled()

    def as_one(self, x, weights, bias, state_weights, more, lengths, first, kind: str, order: tuple[int, ...]):
        """What `run` gives, by one operator. bias: of the input; more: the cells, or the bias of a GRU's state."""
        batch_first = self.node.get("layout", 0)
        if batch_first:
            x = x.permute((1, 0, 2))
            first = first if first is None else first.permute((1, 0, 2))
            more = more.permute((1, 0, 2)) if kind == "lstm" and more is not None else more
        steps, batch = int(x.shape[0]), int(x.shape[1])
        nothing = zeros((self.count, batch, self.node["hidden_size"]), dtype=x.dtype)
        width = self.count * weights.shape[1]
        gates = x.reshape((steps * batch, x.shape[2])) @ weights.reshape((width, x.shape[2])).mT
        gates = gates if bias is None else gates + bias.reshape((width,))
        if kind == "gru" and more is None:
            more = zeros((self.count, weights.shape[1]), dtype=x.dtype)
        elif kind == "lstm" and more is None:
            more = nothing
        y, *last = recurrence(
            gates.reshape((steps, batch, width)), nothing if first is None else first, state_weights, more, lengths,
            kind, order, self.direction == "reverse",
        )  # fmt: skip
        if batch_first:
            y, last = y.permute((2, 0, 1, 3)), [s.permute((1, 0, 2)) for s in last]
        return y, *last

    def clip(self, x):
        bound = self.node.get("clip")
        return x if bound is None else ops.clip(x, -bound, bound)

    def run(self, x, weights, biases, lengths, states, step):
        """x: (time, batch, size); step(direction, given, states) -> states, of which the first is the output. `given` is what the
        input gives to the gates, with a bias: one product for all steps."""
        batch_first = self.node.get("layout", 0)
        if batch_first:
            x = x.permute((1, 0, 2))
            states = [s if s is None else s.permute((1, 0, 2)) for s in states]
        steps, batch = int(x.shape[0]), int(x.shape[1])
        hidden = self.node["hidden_size"]
        nothing = zeros((batch, hidden), dtype=x.dtype)
        outputs, finals = [], []
        for d in range(self.count):
            now = [nothing if s is None else s[d] for s in states]
            backwards = self.direction == "reverse" or d == 1
            given = x.reshape((steps * batch, x.shape[2])) @ weights[d].mT
            given = given if biases is None else given + biases[d]
            given = given.reshape((steps, batch, weights.shape[1]))
            column = [None] * steps
            for t in reversed(range(steps)) if backwards else range(steps):
                new = step(d, given[t], now)
                if lengths is not None:
                    inside = (lengths > t).reshape((batch, 1))
                    column[t] = ops.where(inside, new[0], 0)
                    now = [ops.where(inside, a, b) for a, b in zip(new, now, strict=True)]
                else:
                    column[t], now = new[0], new
            outputs.append(ops.stack(column))
            finals.append(now)
        y = ops.stack(outputs, axis=1)  # (time, directions, batch, hidden)
        last = [ops.stack([f[k] for f in finals]) for k in range(len(finals[0]))]
        if batch_first:
            y, last = y.permute((2, 0, 1, 3)), [s.permute((1, 0, 2)) for s in last]
        return y, *last


def _biases(bias, gates: int, hidden: int):
    """(of the input, of the state), each (directions, gates * hidden); None where there is none."""
    return (None, None) if bias is None else (bias[:, : gates * hidden], bias[:, gates * hidden :])


@onnx_op("RNN")
def rnn(node, x, w, r, b=None, lengths=None, h0=None):
    layer = _Layer(node, ["Tanh"])
    wb, rb = _biases(b, 1, node["hidden_size"])
    if layer.plain(x):
        return layer.as_one(x, w, None if wb is None else wb + rb, r, None, lengths, h0, "tanh", (0,))

    def step(d, given, states):
        return [layer.activations[d][0](layer.clip(given + states[0] @ r[d].mT))]

    return layer.run(x, w, None if wb is None else wb + rb, lengths, [h0], step)


@onnx_op("GRU")
def gru(node, x, w, r, b=None, lengths=None, h0=None):
    layer = _Layer(node, ["Sigmoid", "Tanh"])
    hidden, before_reset = node["hidden_size"], node.get("linear_before_reset", 0)

    wb, rb = _biases(b, 3, hidden)
    if before_reset and layer.plain(x):
        return layer.as_one(x, w, wb, r, rb, lengths, h0, "gru", (1, 0, 2))

    def step(d, given, states):
        f, g = layer.activations[d]
        (h,) = states
        if before_reset:  # one product with the state for all gates
            kept = h @ r[d].mT if rb is None else h @ r[d].mT + rb[d]
        else:
            kept = h @ r[d, : 2 * hidden].mT if rb is None else h @ r[d, : 2 * hidden].mT + rb[d, : 2 * hidden]
        gates = f(layer.clip(given[:, : 2 * hidden] + kept[:, : 2 * hidden]))
        z, reset = gates[:, :hidden], gates[:, hidden:]
        if before_reset:
            candidate = given[:, 2 * hidden :] + reset * kept[:, 2 * hidden :]
        else:
            inner = (reset * h) @ r[d, 2 * hidden :].mT
            candidate = given[:, 2 * hidden :] + (inner if rb is None else inner + rb[d, 2 * hidden :])
        candidate = g(layer.clip(candidate))
        return [(1 - z) * candidate + z * h]

    return layer.run(x, w, wb, lengths, [h0], step)


@onnx_op("LSTM")
def lstm(node, x, w, r, b=None, lengths=None, h0=None, c0=None, p=None):
    layer = _Layer(node, ["Sigmoid", "Tanh", "Tanh"])
    hidden, coupled = node["hidden_size"], node.get("input_forget", 0)

    wb, rb = _biases(b, 4, hidden)
    if not coupled and p is None and layer.plain(x):
        return layer.as_one(x, w, None if wb is None else wb + rb, r, c0, lengths, h0, "lstm", (0, 2, 3, 1))

    def step(d, given, states):
        f, g, o_f = layer.activations[d]
        h, c = states
        total = given + h @ r[d].mT
        i, o, forget, cell = (total[:, k * hidden : (k + 1) * hidden] for k in range(4))
        if p is not None:
            i = i + p[d, :hidden] * c
            forget = forget + p[d, 2 * hidden :] * c
        i = f(layer.clip(i))
        forget = 1 - i if coupled else f(layer.clip(forget))
        new = forget * c + i * g(layer.clip(cell))
        if p is not None:
            o = o + p[d, hidden : 2 * hidden] * new
        return [f(layer.clip(o)) * o_f(new), new]

    return layer.run(x, w, None if wb is None else wb + rb, lengths, [h0, c0], step)
