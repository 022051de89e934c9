"""Programs whose structure is new at every step compile nothing after the first one."""

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.models import Tree, TreeLSTM
from tandem.nn import functional as F


@pytest.fixture
def compiled(monkeypatch):
    made: list = []
    real = td.tracing.compile._compile_plan
    monkeypatch.setattr(td.tracing.compile, "_compile_plan", lambda *args: made.append(args[0].__name__) or real(*args))
    return made


def random_tree(rng, depth: int = 0) -> Tree:
    count = int(rng.integers(1, 4)) if depth < 4 else 0
    return Tree(int(rng.integers(20)), [random_tree(rng, depth + 1) for _ in range(count)], int(rng.integers(3)))


def test_a_recursion_whose_variables_hold_results_for_a_while(compiled):
    """`scores` of one example is held while the next one's calls begin, and is no result of the cell for all that."""
    rng = np.random.default_rng(0)
    model = TreeLSTM(20, 6, 5, 3)
    optimizer = td.optim.SGD(model.parameters(), lr=0.01)

    @td.autobatch
    def step(trees):
        optimizer.zero_grad()
        scores = (model(tree) for tree in trees)
        loss = sum(F.cross_entropy(s, td.tensor([t.label])) for s, t in zip(scores, trees, strict=True))
        loss.backward()
        optimizer.step()

    for number in range(6):
        step([random_tree(rng) for _ in range(25)])
        if number >= 1:
            assert not compiled, f"step {number}"
        compiled.clear()


def test_vertex_programs_of_any_length(compiled):
    """Rows of a weight's gradient are multiplied some hundreds at once: also where one is left over."""
    td.manual_seed(0)
    inner = nn.Linear(3, 3)

    @td.vertex
    def cell(children, x):
        return td.tanh(x + inner(children).sum(0))

    def step(length):
        inner.zero_grad()
        structure = td.Structure.chains([length, 3])
        x = td.ones(len(structure), 3, requires_grad=True)
        cell(structure, x, state=td.zeros(3)).sum().backward()

    step(1500)
    compiled.clear()
    for length in (*range(508, 517), 1024, 1025, 2):
        step(length)
    assert not compiled
