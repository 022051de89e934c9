"""Weight gradients of groups and frontiers, added up once for all of them."""

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem import _runtime, dtypes, nn
from tandem.autodiff.lazy_sums import Summand, lazy_backward
from tandem.autograd.lazy_sums import add_matmul
from tandem.graph.ir import Builder, Graph, Type
from tandem.ops.define import add_input
from tandem.tracing.compile import Tracing

CHAINS = [5, 3, 7, 1, 4, 7]


class Tagger(nn.Module):
    """A recurrent cell, called word by word; its table scores words, too."""

    def __init__(self, tied=True):
        super().__init__()
        td.manual_seed(0)
        self.table, self.cell = nn.Embedding(9, 6), nn.Linear(12, 6)
        self.out = td.nn.Parameter(td.randn(6, 9) * 0.3)
        self.tied = tied

    def forward(self, length):
        h = td.zeros(6)
        total = 0.0
        for i in range(length):
            h = td.tanh(self.cell(td.cat([self.table.weight[i % 9], h])))
            total = total + td.log_softmax(h @ (self.table.weight.mT if self.tied else self.out), -1)[(i * 2) % 9]
        return total


def gradients(model, loss_of):
    model.zero_grad(set_to_none=True)
    loss = loss_of()
    loss.backward()
    return [loss.item(), *(p.grad.numpy() for p in model.parameters() if p.grad is not None)]


def same(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(
            a, b, rtol=1e-4, atol=1e-5 + 1e-6 * np.abs(b).max()
        )  # small ones are differences of large


@pytest.fixture
def multiplied():
    """Rows of the matmuls that weight gradients were made by."""
    rows = []

    def counted(total, left, right):
        rows.append(left.shape[0])
        return add_matmul(total, left, right)

    _runtime.set_callback("add_matmul", counted)
    yield rows
    _runtime.set_callback("add_matmul", add_matmul)


@pytest.mark.parametrize("tied", [False, True])
def test_a_weight_gets_one_matmul_for_all_groups(multiplied, tied):
    model = Tagger(tied)
    loss_of = lambda: sum(model(n) for n in CHAINS)
    expected = gradients(model, loss_of)
    assert not multiplied  # nothing is collected of calls that run by themselves
    for _ in range(3):
        multiplied.clear()
        same(gradients(model, td.autobatch(loss_of)), expected)
    assert sum(multiplied) == 2 * sum(CHAINS)  # the cell's, and what scores words:
    assert len(multiplied) == (3 if tied else 2)  # a view of the table in the first step, and one in all others


def test_rows_are_multiplied_when_there_are_many(multiplied):
    weight = td.randn(4, 4, requires_grad=True)
    rows = [td.randn(n, 4) for n in (100, 300, 400, 700, 5)]
    by_row = lambda: sum((x[i] @ weight).tanh().sum() * (k + 1) for k, x in enumerate(rows) for i in range(x.shape[0]))

    def total():
        return sum(((x @ weight).tanh().sum() * (k + 1)) for k, x in enumerate(rows))

    total().backward()
    expected, weight.grad = weight.grad, None
    by_hand = td.vertex(lambda children, x: td.tanh(x @ weight) + children.sum(0))
    chains = td.Structure.chains([3] * 200)
    x = td.randn(600, 4)
    by_hand(chains, x, state=td.zeros(4)).sum().backward()
    assert multiplied == [400, 200]
    found, weight.grad = weight.grad, None
    count = td.arange(600) % 3
    (td.tanh(x @ weight) * (3 - count)[:, None]).sum().backward()
    same([found.numpy()], [weight.grad.numpy()])
    weight.grad = None
    td.autobatch(by_row)().backward()
    same([weight.grad.numpy()], [expected.numpy()])


def test_a_table_inside_a_vertex_function():
    table, weight = nn.Embedding(7, 4), nn.Linear(4, 4)

    def cell(children, token):
        return td.tanh(weight(table(token)) + children.sum(0))

    structure = td.Structure.from_parents([2, 2, 4, 4, -1, 6, -1])
    tokens = td.tensor([1, 2, 1, 0, 6, 1, 3])
    found = gradients(weight, lambda: (td.vertex(cell)(structure, tokens, state=td.zeros(4)) ** 2).sum())
    in_table, table.weight.grad = table.weight.grad, None

    def by_hand():
        states = []
        for v in range(7):
            children = [c for c in range(7) if [2, 2, 4, 4, -1, 6, -1][c] == v]
            below = td.stack([states[c] for c in children]) if children else td.zeros(0, 4)
            states.append(cell(below, tokens[v]))
        return (td.stack(states) ** 2).sum()

    same(found, gradients(weight, by_hand))
    same([in_table.numpy()], [table.weight.grad.numpy()])


def test_a_weight_that_was_computed_and_one_whose_gradient_is_asked_for():
    v = td.randn(5, 5, requires_grad=True)
    given = [td.randn(5) for _ in range(4)]

    def total():
        weight = v / v.norm()
        loss = 0.0
        for i, x in enumerate(given):
            for _ in range(i + 1):
                x = td.tanh(x @ weight)
            loss = loss + x.sum()
        return loss

    (expected,) = td.autograd.grad(total(), [v])
    (found,) = td.autograd.grad(td.autobatch(total)(), [v])
    same([found.numpy()], [expected.numpy()])


def test_hooks_of_a_weight_see_the_whole_gradient_once():
    model = Tagger(False)
    seen = []
    model.cell.weight.register_hook(lambda g: seen.append(g.numpy()))
    found = gradients(model, td.autobatch(lambda: sum(model(n) for n in CHAINS)))
    assert len(seen) == 1
    same([found[1 + [p is model.cell.weight for p in model.parameters()].index(True)]], seen)


def test_backward_twice_and_gradients_of_gradients():
    model = Tagger(False)
    loss_of = lambda: sum(model(n) for n in CHAINS)
    expected = gradients(model, loss_of)
    model.zero_grad()
    loss = td.autobatch(loss_of)()
    loss.backward(retain_graph=True)
    loss.backward()
    same([p.grad.numpy() / 2 for p in model.parameters()], expected[1:])

    def penalty(scope):
        weight = model.cell.weight
        (g,) = td.autograd.grad(scope(loss_of)(), [weight], create_graph=True)
        return td.autograd.grad((g**2).sum(), [weight])[0].numpy()

    same([penalty(td.autobatch)], [penalty(lambda f: f)])


def test_summands_of_a_graph():
    graph = Graph()
    with Builder(graph) as builder, Tracing():
        x, g = (add_input(builder, Type(dtypes.float32, (6, n))) for n in (3, 4))
        weight = F.Matmul()(F.Permute((1, 0))(g), x)
        turned = F.Permute((1, 0))(F.Matmul()(F.Permute((1, 0))(x), g))
        both = F.Add()(weight, turned)
        other = F.Add()(both, F.Matmul()(F.Permute((1, 0))(g), F.Permute((1, 0))(F.Permute((1, 0))(x))))
        scaled = F.Mul()(weight, weight)
    graph.outputs = [both, scaled, other]
    lazy, kinds = lazy_backward(graph)
    assert kinds == [[Summand.MATMUL] * 2, [], [Summand.MATMUL] * 3]
    assert [v.shape for v in lazy.outputs[:5]] == [(6, 4), (6, 3), (6, 4), (6, 3), (4, 3)]
    graph.outputs = [scaled]
    assert lazy_backward(graph) == (None, [])
