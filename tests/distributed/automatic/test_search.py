"""What a search does within its time, and with functions whose batches cannot be divided."""

import dataclasses
import warnings

import numpy as np
import pytest

import tandem as td
from tandem.distributed.automatic.inter import Intervals
from tandem.distributed.automatic.search import Question, Search
from tandem.distributed.automatic.strategies import strategies_of
from tandem.distributed.pipeline.assign import assign
from tandem.distributed.pipeline.runtime import micro_batch, trace_marked
from tandem.distributed.topology import Link, Topology

RNG = np.random.default_rng(0)
F = td.nn.functional


def numbers(*shape):
    return td.tensor(RNG.standard_normal(shape).astype(np.float32))


def layers(width, count):
    weights = [numbers(width, width).requires_grad_() for _ in range(count)]

    def loss(x):
        for w in weights:
            x = td.tanh(x @ w)
        return x.square().mean()

    return loss


@pytest.mark.parametrize("options", [{}, {"stages": 2, "micro_batches": 4}])
def test_without_time_there_is_a_plan(options):
    plan = td.parallelize(layers(16, 4), (numbers(16, 16),), Topology.processors(2), time_limit=0.0, **options)
    assert len(plan.stages) == options.get("stages", len(plan.stages)) and plan.seconds > 0


def test_a_plan_without_a_search_is_not_called_the_best(monkeypatch):
    no_time = lambda self, shapes, limit: []
    monkeypatch.setattr(Search, "_on_meshes", no_time)
    monkeypatch.setattr(Search, "pipelines", no_time)
    plan = td.parallelize(layers(16, 2), (numbers(16, 16),), (2,))
    assert "the best that was found" in plan.explain() and not plan.optimal and plan.bytes == 0


def test_a_solver_without_time_is_no_worse_than_plans_without_a_search(monkeypatch):
    """What it has found so far may be bad: here each operator is divided, and all is moved in between."""
    real = Search.on_one_mesh

    def first_of_all(self, shape, limit, lies=None, must=True):
        choice = real(self, shape, limit, lies, must)
        if lies is None:
            poor = dataclasses.replace(choice.stages[0].solution, bound=1e-9)
            poor.strategies = {n: self.q.costs(shape).memo.strategies(n)[-1] for n in poor.strategies}
            choice = dataclasses.replace(choice, stages=[dataclasses.replace(choice.stages[0], solution=poor)])
        return choice

    monkeypatch.setattr(Search, "on_one_mesh", first_of_all)
    plan = td.parallelize(layers(16, 4), (numbers(512, 16),), (2,))
    ways = plan.alternatives()
    assert plan.seconds <= min(ways["data parallel"].seconds, ways["replicated"].seconds)


def test_an_interval_on_one_rank_takes_what_its_layers_take():
    traced = trace_marked(layers(64, 6), micro_batch((numbers(64, 64),), 64, 4))
    layer_of, count = assign(traced.graph, set(traced.weights), 6)
    found = Intervals(
        traced, layer_of, count, 4, Topology.processors(2), state=2.0, times=None, until=0.0, gap=1e-2, memory_limit=None,
        solved={},
    )  # fmt: skip
    for i, j in ((0, 5), (1, 4)):
        for made, exact in zip(found.options(i, j, 1, 0), found._solve(i, j, 1, 0), strict=True):
            assert made.recompute == exact.recompute and made.fixed == exact.fixed
            assert (made.micro, made.once) == (pytest.approx(exact.micro, rel=0.1), pytest.approx(exact.once))
            assert made.each == pytest.approx(exact.each, rel=0.3)


def test_what_cannot_be_the_best_is_not_solved(monkeypatch):
    """A plan is known whose steps take less than the layers could, however they were divided."""
    solved = []
    real = Intervals.solution
    monkeypatch.setattr(Intervals, "solution", lambda self, step, *more: solved.append(step) or real(self, step, *more))
    options = {"memory_limit": None, "state": 2.0, "time_limit": 60.0, "gap": 1e-3, "micro_batches": 4}
    search = Search(Question(layers(64, 4), (numbers(64, 64),), Topology.processors(4), None, **options))
    assert search.pipelines(None) and solved
    solved.clear()
    assert search.pipelines(None, known=1e-7) == [] and not solved


def plan_of(make, **options):
    """The number of stages of a plan for running ranks, and what was warned of."""
    topology = Topology(1, 2, Topology.processors(2).device, Link(1e3, 1.0), Link(1e3, 1.0))
    given = {"memory_limit": None, "state": 2.0, "time_limit": 60.0, "gap": 1e-3, **options}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        choice = Search(Question(*make(), topology, None, running=True, **given)).found()
    return len(choice.stages), [str(w.message) for w in found]


def ignoring():
    """A mean over what is not left out: micro-batches leave out more or less."""
    w = numbers(8, 100).requires_grad_()
    y = td.tensor(np.where(RNG.random((8, 64)) < np.arange(8)[:, None] / 9, -100, RNG.integers(0, 100, (8, 64))))
    return (lambda x, y: F.cross_entropy((x @ w).reshape(-1, 100), y.reshape(-1))), (numbers(8, 64, 8), y)


def graph_of_nodes():
    """Rows are nodes, which read one another by number."""
    w, to = numbers(8, 8).requires_grad_(), td.tensor(RNG.permutation(16))
    return (lambda x: (td.relu(x @ w)[to] @ w).square().mean()), (numbers(16, 8),)


@pytest.mark.parametrize(
    ("make", "said"), [(ignoring, "the mean of its micro-batches"), (graph_of_nodes, "no loss of its own")]
)
def test_batches_that_cannot_be_divided(make, said):
    stages, warned = plan_of(make)
    assert stages == 1 and not warned
    stages, warned = plan_of(make, stages=2, micro_batches=4)
    assert stages == 2 and len(warned) == 1 and said in warned[0]


def test_a_mean_over_rows_is_divided_without_a_warning():
    assert plan_of(lambda: (layers(8, 4), (numbers(8, 8),)), stages=2, micro_batches=4) == (2, [])


def test_what_is_known_of_equal_operators_holds_for_each():
    table, w = numbers(16, 8).requires_grad_(), numbers(8, 8).requires_grad_()
    index = td.tensor(RNG.integers(0, 16, (8,)))
    more = numbers(16, 8)
    loss = lambda x: (F.embedding(index, table + more.index_add(0, index, x)) @ w + x @ w).square().mean()
    question = Question(loss, (numbers(8, 8),), Topology.processors(2), None, None, 2.0, 1.0, 1e-3)
    search, costs = Search(question), question.costs((2,))
    for node in search.step.graph.nodes:
        if not node.op.is_input:
            assert costs.memo.strategies(node) == strategies_of(node, costs.grid), node
