"""Sizes that operators need to be equal become one in a compiled program, and its guards still tell calls apart."""

import re

import numpy as np
import pytest

import tandem as td


def lstm_step(width=6):
    td.manual_seed(0)
    layer = td.nn.LSTM(width, width, 2)
    optimizer = td.optim.SGD(layer.parameters(), lr=0.1)

    def step(x, y):
        out = layer(x)[0].reshape(-1, width)
        loss = ((out - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return layer, step


def data(length, batch, width=6):
    rng = np.random.default_rng(length)
    return (td.tensor(rng.random((length, batch, width), dtype=np.float32)),
            td.tensor(rng.random((length * batch, width), dtype=np.float32)))  # fmt: skip


def test_a_recurrent_step_has_one_symbol_for_its_length():
    _, step = lstm_step()
    compiled = td.compile(step)
    compiled(*data(5, 4))
    text = str(compiled.graph())
    assert "floordiv" not in text and "s0" in text
    # The two biases of a layer have one gradient, which is summed once.
    assert sum("kind=sum" in line and "f32[1,1,24]" in line for line in text.splitlines()) == 2
    assert not any("kind=sum" in line and "f32[1,24]" in line for line in text.splitlines())


def test_the_step_with_other_lengths_does_what_eager_code_does():
    one, eager = lstm_step()
    two, step = lstm_step()
    compiled = td.compile(step)
    for length, batch in [(5, 4), (7, 4), (3, 4), (2, 3), (1, 4), (5, 4)]:
        given = data(length, batch)
        np.testing.assert_allclose(compiled(*given).item(), eager(*given).item(), rtol=1e-5)
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("symbolic", [False, True])
def test_numbers_that_no_longer_fit_are_an_error_as_in_eager_code(symbolic):
    """Compiled with n equal to the batch; a call with another n, or with one that does not divide, is told apart."""
    w = td.randn(6, 3)

    def f(x, n):
        return x.reshape(n, -1) @ w

    compiled = td.compile(f)
    for rows in (4, 8) if symbolic else (4,):
        x = td.randn(rows, 2, 3)
        assert td.allclose(compiled(x, rows), f(x, rows))
    x = td.randn(8, 2, 3)
    for n in (4, 5, 16):
        with pytest.raises(td.ShapeError) as expected:
            f(x, n)
        with pytest.raises(td.ShapeError) as got:
            compiled(x, n)
        assert got.value.rule == expected.value.rule
    assert td.allclose(compiled(x, 8), f(x, 8))


def test_a_reshape_to_other_rows_of_the_same_width_makes_a_program_of_its_own():
    def f(x, n):
        y = x.reshape(n, -1)
        return (y * 2).sum(0), y.shape[1]

    compiled = td.compile(f)
    x = td.arange(48.0).reshape(8, 6)
    for n in (8, 4, 16, 2, 8, 24):
        total, width = compiled(x, n)
        expected, known = f(x, n)
        assert width == known and total.tolist() == expected.tolist()


def test_shapes_that_gradients_are_given_are_those_of_the_program():
    """Strided slices joined again: what their gradients are added up into lies as the program knows it, so no index is divided."""
    td.manual_seed(0)
    layer, scale = td.nn.Linear(24, 6), td.nn.Parameter(td.ones(6))

    def step(x):
        b, _, c = x.shape
        y = (x * scale).view(b, 4, 8, c)
        y = td.cat([y[:, 0::2, 0::2], y[:, 1::2, 0::2], y[:, 0::2, 1::2], y[:, 1::2, 1::2]], -1)
        y = layer(td.tanh(y.view(b, -1, 4 * c)))
        scale.grad = layer.weight.grad = layer.bias.grad = None
        (y**2).sum().backward()
        return scale.grad

    for batch in (2, 4, 3):  # sizes that are multiples of the batch, and not
        compiled = td.compile(step)
        for rows in (batch, batch + 1):
            x = td.rand(rows, 32, 6)
            np.testing.assert_allclose(compiled(x).numpy(), step(x).numpy(), rtol=1e-4)
        shapes = re.findall(r"f32\[s0,([^\]]*)\] = reshape", str(compiled.graph()))
        assert len(shapes) >= 4 and {shape.split(",")[-1] for shape in shapes} == {"6", "24"}
