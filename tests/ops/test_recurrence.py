"""All steps of a recurrent layer as one operator: what the steps give one after the other, in float64."""

import itertools

import numpy as np
import pytest

import tandem as td
from tandem.graph.ir import Type
from tandem.ops.recurrence import Recurrence, recurrence

KINDS = [("lstm", (0, 2, 3, 1)), ("lstm", (0, 1, 2, 3)), ("gru", (1, 0, 2)), ("tanh", (0,)), ("relu", (0,))]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def operands(kind: str, order: tuple, shape: tuple, ends: bool) -> list:
    """gates, h, w, cells or bias, lengths, as arrays"""
    rng = np.random.default_rng(0)
    directions, steps, rows, hidden = shape
    width = len(order) * hidden
    made = [
        rng.standard_normal((steps, rows, directions * width)),
        rng.standard_normal((directions, rows, hidden)),
        rng.standard_normal((directions, width, hidden)) / np.sqrt(hidden),
        {"lstm": rng.standard_normal((directions, rows, hidden)), "gru": rng.standard_normal((directions, width))}.get(
            kind
        ),
    ]
    lengths = rng.integers(0, steps + 1, rows) if ends else None
    return [None if x is None else x.astype(np.float32) for x in made] + [lengths]


def step(kind: str, order: tuple, given, h, c, w, bias) -> list:
    hidden = h.shape[1]

    def parts(x):
        return [x[:, k * hidden : (k + 1) * hidden] for k in order]

    kept = h @ w.T
    if kind == "lstm":
        i, f, g, o = parts(given + kept)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return [sigmoid(o) * np.tanh(c), c]
    if kind == "gru":
        (rx, zx, nx), (rh, zh, nh) = parts(given), parts(kept + bias)
        z, new = sigmoid(zx + zh), np.tanh(nx + sigmoid(rx + rh) * nh)
        return [(1 - z) * new + z * h]
    return [np.tanh(given + kept) if kind == "tanh" else np.maximum(given + kept, 0)]


def one_after_the_other(kind: str, order: tuple, reverse: bool, gates, h, w, more, lengths) -> list:
    gates, h, w, more = (None if x is None else x.astype(np.float64) for x in (gates, h, w, more))
    steps, width = gates.shape[0], w.shape[1]
    hidden, finals = np.zeros((steps, *h.shape)), []
    for d in range(h.shape[0]):
        state = [h[d], more[d]] if kind == "lstm" else [h[d]]
        for t in reversed(range(steps)) if reverse or d == 1 else range(steps):
            given = gates[t][:, d * width : (d + 1) * width]
            new = step(kind, order, given, state[0], state[-1], w[d], more[d] if kind == "gru" else None)
            inside = np.ones((h.shape[1], 1), bool) if lengths is None else (lengths > t)[:, None]
            hidden[t, d] = np.where(inside, new[0], 0)
            state = [np.where(inside, a, b) for a, b in zip(new, state, strict=True)]
        finals.append(state)
    return [hidden, *(np.stack([f[k] for f in finals]) for k in range(len(finals[0])))]


@pytest.mark.parametrize("kind, order", KINDS)
@pytest.mark.parametrize("directions", [1, 2])
def test_the_steps_of_all_kinds_directions_and_lengths(kind, order, directions):
    sizes = itertools.product((1, 5), (1, 2, 8), (1, 16, 35), (False, True), (False, True))
    for steps, rows, hidden, ends, reverse in sizes:
        given = operands(kind, order, (directions, steps, rows, hidden), ends)
        wanted = one_after_the_other(kind, order, reverse, *given)
        made = recurrence(*(None if x is None else td.tensor(x) for x in given), kind, order, reverse)
        for have, want in zip(made, wanted, strict=True):
            np.testing.assert_allclose(have.numpy(), want, rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize("ends", [False, True])
def test_weights_larger_than_a_cache_are_shared_by_units(ends):
    given = operands("lstm", KINDS[0][1], (2, 3, 2, 300), ends)
    wanted = one_after_the_other("lstm", KINDS[0][1], False, *given)
    made = recurrence(*(None if x is None else td.tensor(x) for x in given), *KINDS[0], False)
    for have, want in zip(made, wanted, strict=True):
        np.testing.assert_allclose(have.numpy(), want, rtol=2e-5, atol=3e-6)


def test_operands_of_any_layout():
    given = operands("gru", (1, 0, 2), (2, 4, 3, 20), True)
    wanted = one_after_the_other("gru", (1, 0, 2), False, *given)
    strided = []
    for x in given:
        wide = td.tensor(np.repeat(x, 2, axis=-1))
        strided.append(wide[..., ::2])
    for have, want in zip(recurrence(*strided, "gru", (1, 0, 2), False), wanted, strict=True):
        np.testing.assert_allclose(have.numpy(), want, rtol=2e-5, atol=3e-6)


def test_large_and_missing_numbers_pass_through():
    gates = td.tensor(np.array([[[1e30, -1e30, np.nan, np.inf]]], np.float32))
    nothing = td.zeros(1, 1, 4)
    hidden, _ = recurrence(gates, nothing, td.zeros(1, 4, 4), None, None, "tanh", (0,), False)
    np.testing.assert_array_equal(hidden.numpy().ravel(), [1, -1, np.nan, 1])


@pytest.mark.parametrize("kind, order", KINDS)
def test_gradients_are_those_of_the_steps(kind, order):
    given = operands(kind, order, (2, 3, 2, 4), True)
    tensors = [None if x is None else td.tensor(x) for x in given]
    leaves = [t.requires_grad_() for t in tensors[:4] if t is not None]
    made = recurrence(*tensors, kind, order, False)
    grads = td.autograd.grad(sum((m * m).sum() for m in made), leaves)
    index = 2  # of a weight, by differences
    w, moved = given[2].astype(np.float64), 1e-3
    losses = []
    for sign in (1, -1):
        changed = w.copy()
        changed[1, 2, 3] += sign * moved
        inputs = [*given[:2], changed, *given[3:]]
        losses.append(sum((m**2).sum() for m in one_after_the_other(kind, order, False, *inputs)))
    np.testing.assert_allclose(
        grads[index].numpy()[1, 2, 3], (losses[0] - losses[1]) / (2 * moved), rtol=2e-2, atol=1e-3
    )


def test_wrong_graphs_are_refused():
    gates, h, w = td.zeros(2, 1, 8), td.zeros(1, 1, 2), td.zeros(1, 8, 2)
    with pytest.raises(td.ShapeError, match="4 gates of 2 units"):
        Recurrence("lstm", (0, 1, 2, 3), False, False).rule(*(_type(t) for t in (gates, h, td.zeros(1, 6, 2), h)))
    with pytest.raises(td.ShapeError, match="operands after w"):
        Recurrence("lstm", (0, 1, 2, 3), False, True).rule(*(_type(t) for t in (gates, h, w, h)))
    with pytest.raises(td.ValueRangeError, match="order"):
        Recurrence("lstm", (0, 1, 2, 2), False, False).rule(*(_type(t) for t in (gates, h, w, h)))


def _type(t):
    return Type(t.dtype, tuple(t.shape))
