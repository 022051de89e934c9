"""Results that take the place of an operand on the CPU (codegen/overwrite.py)."""

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem.distributed.sharding.local import local_function
from tandem.graph.ir import Builder, Graph, Type
from tandem.ops.define import add_input
from tandem.tracing.compile import Tracing

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


def test_a_scatter_into_the_transpose_of_a_square_matrix_takes_no_place_of_the_matrix():
    x = np.arange(9, dtype=np.float32).reshape(3, 3) / 9
    index = np.array([[0, 1, 2], [2, 0, 1], [0, 0, 1]])
    graph = Graph(name="transposed")
    with Builder(graph) as builder, Tracing():
        value, rows = add_input(builder, Type(td.float32, (3, 3))), add_input(builder, Type(td.int64, (3, 3)))
        columns = F.Iota((3, 3), 1, td.int64)()
        made = F.Scatter("add")(F.Permute((1, 0))(F.Mul()(value, value)), value, rows, columns)
        graph.outputs = [F.Exp()(F.Slice((0, 0), (1, 1), (3, 2))(made))]
    expected = (x * x).T.copy()
    np.add.at(expected, (index, np.arange(3)[None]), x)
    (result,) = local_function("transposed", graph, [False, False])([td.tensor(x), td.tensor(index)], [])
    np.testing.assert_allclose(result.numpy(), np.exp(expected[:, :2]), rtol=1e-5)
