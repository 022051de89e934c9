"""Sequences of different lengths, padded and packed."""

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.nn.utils import rnn

SEQUENCES = [td.arange(3.0).reshape(3, 1), td.arange(5.0).reshape(5, 1) + 10, td.arange(2.0).reshape(2, 1) + 20]


def test_padding():
    padded = rnn.pad_sequence(SEQUENCES, batch_first=True, padding_value=-1.0)
    assert padded[..., 0].tolist() == [[0, 1, 2, -1, -1], [10, 11, 12, 13, 14], [20, 21, -1, -1, -1]]
    assert rnn.pad_sequence(SEQUENCES).shape == (5, 3, 1)
    left = rnn.pad_sequence(SEQUENCES, batch_first=True, padding_side="left")
    assert left[2, :, 0].tolist() == [0, 0, 0, 20, 21]
    back = rnn.unpad_sequence(padded, td.tensor([3, 5, 2]), batch_first=True)
    assert [s.tolist() for s in back] == [s.tolist() for s in SEQUENCES]


def test_packing_round_trips():
    packed = rnn.pack_sequence(SEQUENCES, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 3, 2, 1, 1]
    assert packed.data[:3, 0].tolist() == [10, 0, 20] and packed.sorted_indices.tolist() == [1, 0, 2]
    assert [s.tolist() for s in rnn.unpack_sequence(packed)] == [s.tolist() for s in SEQUENCES]
    padded, lengths = rnn.pad_packed_sequence(packed, padding_value=9.0, total_length=6)
    assert padded.shape == (6, 3, 1) and lengths.tolist() == [3, 5, 2] and padded[5, :, 0].tolist() == [9, 9, 9]
    assert packed.to(td.float64).data.dtype is td.float64


def test_packed_sequences_are_what_each_sequence_gives_alone():
    for layer in (nn.LSTM(1, 3, 2, bidirectional=True), nn.GRU(1, 3), nn.RNN(1, 3, bidirectional=True)):
        out, last = layer(rnn.pack_sequence(SEQUENCES, enforce_sorted=False))
        last = last[0] if isinstance(last, tuple) else last
        for i, (part, s) in enumerate(zip(rnn.unpack_sequence(out), SEQUENCES, strict=True)):
            alone, state = layer(s)
            state = state[0] if isinstance(state, tuple) else state
            np.testing.assert_allclose(part.detach().numpy(), alone.detach().numpy(), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(last[:, i].detach().numpy(), state.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_gradients_pass_through_packing():
    x = td.ones(4, 2, 1, requires_grad=True)
    packed = rnn.pack_padded_sequence(x, [4, 2])
    padded, _ = rnn.pad_packed_sequence(packed)
    (padded * 3).sum().backward()
    assert x.grad[..., 0].tolist() == [[3, 3], [3, 3], [3, 0], [3, 0]]


def test_mistakes():
    x = td.ones(4, 2, 1)
    for lengths in ([2, 4], [4], [5, 1], [4, 0]):
        with pytest.raises(ValueError, match="length"):
            rnn.pack_padded_sequence(x, lengths)
    with pytest.raises(ValueError, match="total_length"):
        rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [4, 2]), total_length=3)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_compiled_packed_sequences_take_lengths_as_data(kind):
    td.manual_seed(0)
    layer = kind(3, 4, num_layers=2, bidirectional=True)
    parameters = list(layer.parameters())

    def step(sequences):
        packed, last = layer(rnn.pack_sequence(sequences, enforce_sorted=False))
        last = last[0] if isinstance(last, tuple) else last
        loss = (packed.data**2).sum() + last.sum()
        return loss, td.autograd.grad(loss, parameters)

    compiled = td.compile(step)
    for lengths in ([4, 2, 6], [3, 5, 2], [2, 7, 3], [5, 5, 4]):
        sequences = [td.randn(n, 3) for n in lengths]
        (loss, grads), (expected, wanted) = compiled(sequences), step(sequences)
        np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-5)
        for g, w in zip(grads, wanted, strict=True):
            np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-4, atol=1e-5)
    assert compiled._programs.num_programs <= 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LSTM(3, 4, 2, bidirectional=True),
        lambda: nn.LSTM(3, 4, proj_size=2),
        lambda: nn.GRU(3, 4, bidirectional=True),
        lambda: nn.RNN(3, 4, nonlinearity="relu", bidirectional=True),
    ],
)
@pytest.mark.parametrize("given", [False, True])
def test_compiled_sequences_that_share_rows_begin_with_their_own_states(make, given):
    """In a compiled loop short sequences lie one after the other: see joined_steps in nn/steps.py."""
    td.manual_seed(0)
    layer = make().double()
    sequences = [td.randn(n, 3, dtype=td.float64, requires_grad=True) for n in (2, 9, 1, 4, 3, 9, 1)]
    widths = [layer.proj_size or 4, 4][: layer.states]
    first = [
        td.randn(layer.num_layers * layer.num_directions, 7, w, dtype=td.float64, requires_grad=True) for w in widths
    ]
    leaves = [*sequences, *layer.parameters(), *(first if given else [])]

    def step(sequences, first):
        hx = (first[0] if len(first) == 1 else tuple(first)) if given else None
        packed, last = layer(rnn.pack_sequence(sequences, enforce_sorted=False), hx)
        last = last if isinstance(last, tuple) else (last,)
        loss = (packed.data**2).sum() + sum(((k + 1) * s).sin().sum() for k, s in enumerate(last))
        return [loss, packed.data, *last, *td.autograd.grad(loss, leaves)]

    for found, wanted in zip(td.compile(step)(sequences, first), step(sequences, first), strict=True):
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_rows_of_a_compiled_loop_that_have_ended_do_not_grow_without_bound():
    layer = nn.RNN(1, 1, nonlinearity="relu", bias=False)
    with td.no_grad():
        layer.weight_ih_l0.fill_(1.0)
        layer.weight_hh_l0.fill_(1e20)

    def step(sequences):
        out, _ = layer(rnn.pack_sequence(sequences))
        return td.autograd.grad(out.data.sum(), list(layer.parameters()))

    sequences = [td.tensor([[0.0]] * 4 + [[1.0]]), td.tensor([[1.0]])]
    assert [g.item() for g in td.compile(step)(sequences)] == [g.item() for g in step(sequences)] == [2.0, 0.0]


def test_packing_nothing_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        rnn.pack_sequence([])


def test_packed_sequences_are_converted():
    packed = nn.utils.rnn.pack_sequence([td.ones(2, 3), td.ones(1, 3)])
    assert packed.double().data.dtype is td.float64 and packed.half().data.dtype is td.float16
    assert packed.long().float().data.dtype is td.float32 and packed.int().data.dtype is td.int32
    assert packed.cpu().batch_sizes.tolist() == [2, 1] and not packed.is_cuda
