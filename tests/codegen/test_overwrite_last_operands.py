"""Results that take the place of an operand on the CPU (codegen/overwrite.py)."""

import numpy as np
import pytest

import tandem as td

ROWS, VOCABULARY = 256, 5000
SCORES = ROWS * VOCABULARY * 4


def training_step(bias: bool):
    td.manual_seed(0)
    table, head = td.nn.Embedding(300, 64), td.nn.Linear(64, VOCABULARY, bias=bias)
    parameters = [*table.parameters(), *head.parameters()]
    optimizer = td.optim.SGD(parameters, lr=0.5)
    x, y = td.arange(ROWS) % 300, (td.arange(ROWS) * 7) % VOCABULARY

    def step():
        optimizer.zero_grad()
        loss = td.nn.functional.cross_entropy(head(table(x)), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, parameters


@pytest.mark.parametrize("bias", [False, True])
def test_gradients_of_scores_take_their_place(bias):
    step, eager = training_step(bias)
    expected = [step().item() for _ in range(3)]
    step, compiled = training_step(bias)
    step = td.compile(step)
    np.testing.assert_allclose([step().item() for _ in range(3)], expected, rtol=1e-5)
    for a, b in zip(eager, compiled):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-6)
    assert SCORES < step.memory()["peak"] < 1.8 * SCORES


def test_an_operand_that_is_read_later_stays():
    def f(x, w):
        scores = x @ w
        shares = td.softmax(scores, 1)
        changed = (shares - 0.5) * scores  # scores are read for the last time here,
        return changed.sum(0), shares, (changed * scores).sum()  # or here

    x, w = td.rand(600, 16), td.rand(16, 800)
    for got, expected in zip(td.compile(f)(x, w), f(x, w)):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=2e-5, atol=1e-4)
