"""Recurrent layers and cells."""

from __future__ import annotations

import math

from tandem import _runtime
from tandem.errors import ShapeError
from tandem.nn import functional as F
from tandem.nn import init
from tandem.nn.linear import empty_parameter
from tandem.nn.module import Module
from tandem.nn.steps import Cut, gru_step, joined_steps, lstm_step, on_device, rnn_step, run_steps, scan_steps
from tandem.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence
from tandem.ops import concat, full, index_select, stack
from tandem.ops.lstm_sequence import lstm_sequence


class RNNBase(Module):
    """Layers of recurrent cells over sequences.

    Weights of layer k are weight_ih_l{k} (gates * H, I), weight_hh_l{k} (gates * H, H), bias_ih_l{k}, bias_hh_l{k}, with _reverse
    at the end for the direction from the end to the start.
    """

    gates = 1
    states = 1  # how many tensors a cell passes on

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
                 dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device=None, dtype=None):  # fmt: skip
        super().__init__()
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout is {dropout}; a probability lies between 0 and 1")
        if num_layers <= 0 or hidden_size <= 0 or not 0 <= proj_size < hidden_size:
            raise ValueError(
                f"num_layers {num_layers} and hidden_size {hidden_size} must be positive, proj_size {proj_size} smaller"
            )
        self.input_size, self.hidden_size, self.num_layers, self.proj_size = (
            input_size,
            hidden_size,
            num_layers,
            proj_size,
        )
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        out = proj_size or hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else out * self.num_directions
            for suffix in self._suffixes(layer):
                shapes = {"weight_ih": (self.gates * hidden_size, width), "weight_hh": (self.gates * hidden_size, out)}
                if bias:
                    shapes |= {"bias_ih": (self.gates * hidden_size,), "bias_hh": (self.gates * hidden_size,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    self.register_parameter(name + suffix, empty_parameter(*shape, device=device, dtype=dtype))
        self.reset_parameters()

    @property
    def num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self.num_directions]

    def reset_parameters(self):
        bound = 1.0 / math.sqrt(self.hidden_size)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def flatten_parameters(self):
        """Nothing to do: weights are used where they are."""

    @property
    def all_weights(self) -> list[list]:
        kinds = [
            "weight_ih",
            "weight_hh",
            *(["bias_ih", "bias_hh"] if self.bias else []),
            *(["weight_hr"] if self.proj_size else []),
        ]
        return [
            [getattr(self, k + s) for k in kinds] for layer in range(self.num_layers) for s in self._suffixes(layer)
        ]

    def _step(self, suffix: str):
        """A function (what the input gives, *state) -> state."""
        raise NotImplementedError

    def _run(self, x, sizes: list[int], state: tuple, zeros: bool = False) -> tuple:
        """All layers on x (rows, I), of which each step has `sizes` rows; state: tensors (layers * directions, N, H), which are
        known to be zeros or not."""
        last: list[tuple] = []
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                x = F.dropout(x, self.dropout, True)
            directions = []
            for suffix in self._suffixes(layer):
                bias = getattr(self, "bias_ih" + suffix) if self.bias else None
                whole = min(sizes) == max(sizes) and self._as_one_operator(x)
                if whole and self.bias:
                    bias = bias + getattr(self, "bias_hh" + suffix)
                gates = F.linear(x, getattr(self, "weight_ih" + suffix), bias)
                first = tuple(s[len(last)] for s in state)
                step, reverse = self._step(suffix), suffix.endswith("_reverse")
                if whole:
                    output, final = self._sequence(suffix, gates, len(sizes), first, reverse)
                elif min(sizes) == max(sizes):
                    output, final = scan_steps(step, gates, len(sizes), first, reverse)
                elif _runtime.capturing():
                    output, final = joined_steps(step, gates, sizes, None if zeros else first, first, reverse)
                else:
                    outputs, final = run_steps(step, list(Cut.apply(gates, tuple(sizes))), first, reverse)
                    output = concat(outputs, 0)
                directions.append(output)
                last.append(final)
            x = directions[0] if len(directions) == 1 else concat(directions, -1)
        return x, tuple(stack([states[k] for states in last], 0) for k in range(self.states))

    def _as_one_operator(self, x) -> bool:
        """Whether all steps run as one operator, see Note [LSTM as one operator] in ops/lstm_sequence.py."""
        return False

    def _first_state(self, hx, batch: int, like) -> tuple:
        widths = (self.proj_size or self.hidden_size, self.hidden_size)[: self.states]
        expected = [(self.num_layers * self.num_directions, batch, w) for w in widths]
        if hx is None:
            return tuple(full(shape, 0.0, dtype=like.dtype, device=getattr(like, "device", None)) for shape in expected)
        hx = tuple(hx) if self.states > 1 else (hx,)
        for h, shape in zip(hx, expected, strict=True):
            if h.shape != shape:
                raise ShapeError(type(self).__name__, f"the initial state is {h.shape} and must be {shape}")
        return hx

    def _result(self, states: tuple):
        return states if self.states > 1 else states[0]

    def forward(self, input, hx=None):
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if getattr(input, "is_nested", False):  # (N, ragged, I) -> (N, ragged, H), whatever batch_first says
            packed, states = self._forward_packed(pack_sequence(input.unbind(), enforce_sorted=False), hx)
            return input.with_values(concat(unpack_sequence(packed), 0)), states
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            form = "(N, L, I)" if self.batch_first else "(L, N, I)"
            raise ShapeError(
                type(self).__name__, f"input is {input.shape}; it must be {form} or (L, I) with I = {self.input_size}"
            )
        single = input.ndim == 2
        x = input.unsqueeze(1) if single else input.transpose(0, 1) if self.batch_first else input
        if single and hx is not None:
            hx = tuple(h.unsqueeze(1) for h in hx) if self.states > 1 else hx.unsqueeze(1)
        steps, batch = x.shape[:2]
        out, states = self._run(x.reshape(steps * batch, -1), [batch] * steps, self._first_state(hx, batch, x))
        out = out.reshape(steps, batch, -1)
        if single:
            return out.squeeze(1), self._result(tuple(s.squeeze(1) for s in states))
        return (out.transpose(0, 1) if self.batch_first else out), self._result(states)

    def _forward_packed(self, packed: PackedSequence, hx):
        sizes = packed.batch_sizes.tolist()
        state = self._first_state(hx, sizes[0], packed.data)
        if hx is not None and packed.sorted_indices is not None:
            state = tuple(index_select(s, 1, packed.sorted_indices) for s in state)
        out, states = self._run(packed.data, sizes, state, hx is None)
        if packed.unsorted_indices is not None:
            states = tuple(index_select(s, 1, packed.unsorted_indices) for s in states)
        return PackedSequence(out, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices), self._result(
            states
        )

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if not self.bias:
            text += ", bias=False"
        if self.batch_first:
            text += ", batch_first=True"
        if self.dropout:
            text += f", dropout={self.dropout}"
        if self.bidirectional:
            text += ", bidirectional=True"
        return text


class RNN(RNNBase):
    """Recurrent layers h = tanh(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh), or with relu.

    input: (L, N, I), (N, L, I) with batch_first, (L, I), a PackedSequence or nested (N, ragged, I).
    hx: (layers * directions, N, H), zeros by default
    -> output (L, N, directions * H), last states

    >>> out, h = td.nn.RNN(4, 8)(td.ones(5, 2, 4))
    >>> out.shape, h.shape
    ((5, 2, 8), (1, 2, 8))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device=None,
        dtype=None,
    ):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"nonlinearity is {nonlinearity!r}; it must be 'tanh' or 'relu'")
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )
        self.nonlinearity = nonlinearity

    def _step(self, suffix):
        w, b = getattr(self, "weight_hh" + suffix), getattr(self, "bias_hh" + suffix) if self.bias else None
        return lambda gates, h: (rnn_step(gates, h, w, b, self.nonlinearity),)


class LSTM(RNNBase):
    """Long short-term memory; its state is the pair (h, c). Gates: input, forget, cell, output.

    input: (L, N, I), (N, L, I) with batch_first, (L, I), a PackedSequence or nested (N, ragged, I).
    hx: (h, c), each (layers * directions, N, H)
    -> output (L, N, directions * H), (last h, last c). proj_size: h is projected to that size.

    >>> out, (h, c) = td.nn.LSTM(4, 8, num_layers=2, bidirectional=True)(td.ones(5, 2, 4))
    >>> out.shape, h.shape
    ((5, 2, 16), (4, 2, 8))
    """

    gates = 4
    states = 2

    def _step(self, suffix):
        w, b = getattr(self, "weight_hh" + suffix), getattr(self, "bias_hh" + suffix) if self.bias else None
        projection = getattr(self, "weight_hr" + suffix) if self.proj_size else None
        return lambda gates, h, c: lstm_step(gates, h, c, w, b, projection)

    def _as_one_operator(self, x) -> bool:
        return not self.proj_size and on_device(x)

    def _sequence(self, suffix: str, gates, steps: int, first: tuple, reverse: bool) -> tuple:
        rows = gates.shape[0] // steps
        parts = gates.reshape(steps, rows, 4 * self.hidden_size)
        hidden, cells = lstm_sequence(parts, *first, getattr(self, "weight_hh" + suffix), reverse)
        final = 0 if reverse else -1
        return hidden.reshape(steps * rows, self.hidden_size), (hidden[final], cells[final].to(first[1].dtype))


class GRU(RNNBase):
    """Gated recurrent units. Gates: reset, update, new.

    input: (L, N, I), (N, L, I) with batch_first, (L, I), a PackedSequence or nested (N, ragged, I).
    hx: (layers * directions, N, H)
    -> output (L, N, directions * H), last states
    """

    gates = 3

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
                 dropout: float = 0.0, bidirectional: bool = False, device=None, dtype=None):  # fmt: skip
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )

    def _step(self, suffix):
        w, b = getattr(self, "weight_hh" + suffix), getattr(self, "bias_hh" + suffix) if self.bias else None
        return lambda gates, h: (gru_step(gates, h, w, b),)


class RNNCellBase(Module):
    """What RNNCell, LSTMCell and GRUCell share: weights of the input and of the state, one block of rows for each gate."""

    gates = 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device=None, dtype=None):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        for name, width in (("weight_ih", input_size), ("weight_hh", hidden_size)):
            self.register_parameter(name, empty_parameter(self.gates * hidden_size, width, device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(
                name, empty_parameter(self.gates * hidden_size, device=device, dtype=dtype) if bias else None
            )
        self.reset_parameters()

    def reset_parameters(self):
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def _zeros(self, input):
        return full(
            (*input.shape[:-1], self.hidden_size), 0.0, dtype=input.dtype, device=getattr(input, "device", None)
        )

    def _weights(self) -> tuple:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """One step of RNN. input: (N, I) or (I), hx: (N, H) or (H) -> shape of hx"""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device=None, dtype=None
    ):
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        cell = F.rnn_tanh_cell if self.nonlinearity == "tanh" else F.rnn_relu_cell
        return cell(input, self._zeros(input) if hx is None else hx, *self._weights())


class LSTMCell(RNNCellBase):
    """One step of LSTM. input: (N, I) or (I), hx: (h, c), each (N, H) or (H) -> the new pair

    >>> h, c = td.nn.LSTMCell(3, 5)(td.ones(2, 3))
    >>> h.shape
    (2, 5)
    """

    gates = 4

    def forward(self, input, hx=None):
        if hx is None:
            hx = (self._zeros(input), self._zeros(input))
        return F.lstm_cell(input, hx, *self._weights())


class GRUCell(RNNCellBase):
    """One step of GRU. input: (N, I) or (I), hx: (N, H) or (H) -> shape of hx"""

    gates = 3

    def forward(self, input, hx=None):
        return F.gru_cell(input, self._zeros(input) if hx is None else hx, *self._weights())
