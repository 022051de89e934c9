"""Plans of several stages on submeshes: when they are chosen, what they say, and that they train as one process does."""

import dataclasses
import time

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist
from tandem.distributed.automatic.inter import Intervals, best_rows
from tandem.distributed.pipeline.assign import assign
from tandem.distributed.pipeline.runtime import micro_batch, trace_marked
from tandem.distributed.simulator import simulate_plan
from tandem.distributed.topology import Link, Topology

RNG = np.random.default_rng(0)
FAST, SLOW = Link(1e10, 1e-7), Link(1e8, 1e-6)


def islands(between: Link, nodes: int = 2, per_node: int = 2) -> Topology:
    """Nodes with a fast link inside."""
    return dataclasses.replace(
        Topology.processors(nodes * per_node), nodes=nodes, per_node=per_node, inside=FAST, between=between
    )


def chain(rows, width, layers):
    """The same numbers each time, whichever thread asks."""
    arrays = [RNG.standard_normal((width, width)).astype(np.float32) * width**-0.5 for _ in range(layers)]
    x = td.tensor(RNG.standard_normal((rows, width)).astype(np.float32))

    def make():
        weights = td.nn.ParameterList([td.tensor(a) for a in arrays])

        def loss(x):
            for w in weights:
                x = td.relu(x @ w)
            return x.square().mean()

        return loss, (x,), weights

    return make


BIG = chain(512, 512, 4)


def test_a_pipeline_over_a_slow_link_with_divided_layers_inside_each_island():
    loss, args, _ = BIG()
    slow, fast = (td.parallelize(loss, args, islands(link)) for link in (SLOW, FAST))
    assert [s.place.ranks for s in slow.stages] == [(0, 1), (2, 3)] and slow.micro_batches > 1
    divided = [p for s in slow.stages for i in s.step.weights for p in s.solution.placements[s.step.graph.inputs[i]]]
    assert divided and all(isinstance(p, dist.Shard) for p in divided)
    assert len(fast.stages) == 1 and fast.stages[0].place.shape == (2, 2)


@pytest.mark.slow  # all ways are solved for
@pytest.mark.parametrize("between", [SLOW, FAST, Link(1e6, 1e-3)])
def test_no_usual_way_is_better(between):
    loss, args, _ = BIG()
    ways = td.parallelize(loss, args, islands(between)).alternatives()
    assert {"data parallel", "fully sharded", "tensor parallel", "pipeline"} < set(ways)
    assert ways["this plan"].seconds <= 1.002 * min(a.seconds for a in ways.values())


def check(make, topology, steps=2, **options):
    """Steps by a plan are those of one process; what was predicted to be sent is what was sent."""
    loss, args, weights = make()
    optimizer = td.optim.SGD(weights.parameters(), lr=0.1)
    expected = []
    for _ in range(steps):
        optimizer.zero_grad()
        found = loss(*args)
        found.backward()
        expected.append(found.item())
        gradients = [w.grad.numpy().copy() for w in weights]
        optimizer.step()

    def work():
        loss, args, module = make()
        plan = td.parallelize(loss, args, topology, **options).apply(module)
        own = {id(p) for p in plan.parameters()}
        optimizer = td.optim.SGD(plan.parameters(), lr=0.1)
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            losses.append(plan.step(*args).item())
            optimizer.step()
        found = {i: p.grad.full_tensor().numpy() for i, p in enumerate(module) if id(p) in own}
        return losses, found, plan._pipe.sent == plan.sent(dist.get_rank()), len(plan.stages)

    results = dist.spawn(work, topology.devices, engine="threads", timeout=300)
    for losses, found, as_predicted, stages in results:
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
        for i, g in found.items():
            np.testing.assert_allclose(g, gradients[i], rtol=1e-4, atol=1e-6)
        assert as_predicted and stages == options["stages"]
    assert set().union(*(found for _, found, *_ in results)) == set(range(len(weights)))


SMALL = chain(16, 16, 6)


@pytest.mark.parametrize("schedule", ["1f1b", "zero_bubble"])
def test_two_stages_of_two_ranks_train_as_one_process(schedule):
    check(SMALL, islands(SLOW), stages=2, micro_batches=4, schedule=schedule)


@pytest.mark.parametrize("topology", [Topology.processors(2), islands(SLOW)], ids=["of one rank", "of two ranks"])
def test_interleaved_stages_train_as_one_process(topology):
    check(SMALL, topology, stages=4, micro_batches=4, schedule="interleaved")


def test_interleaved_stages_are_searched_and_shorten_the_wait(tmp_path):
    loss, args, _ = chain(256, 256, 8)()
    plans = {
        name: td.parallelize(loss, args, Topology.processors(2), micro_batches=4, schedule=name, time_limit=60.0)
        for name in ("1f1b", "interleaved", None)
    }
    made, plain = plans["interleaved"], plans["1f1b"]
    assert made.choice.schedule_name == "interleaved" and len(made.stages) > len(made.choice.rows) == 2
    assert made.seconds < plain.seconds and made.choice.idle < plain.choice.idle
    assert plans[None].seconds <= made.seconds  # it is among what is tried
    assert {s.place.ranks for s in made.stages} == {(0,), (1,)}
    assert f"plan of {len(made.stages)} stages at 2 places" in made.explain()
    path = tmp_path / "plan.json"
    made.save(path)
    again = dist.load_plan(path, loss, args, Topology.processors(2))
    assert again.seconds == pytest.approx(made.seconds) and again.choice.schedule == made.choice.schedule
    assert "stage 3" in again.view() and simulate_plan(again).time == pytest.approx(made.seconds)


def test_memory_of_interleaved_stages_is_that_of_all_stages_of_a_rank():
    loss, args, _ = chain(64, 256, 8)()
    made, plain = (
        td.parallelize(loss, args, Topology.processors(2), micro_batches=4, stages=n, schedule=name, time_limit=60.0)
        for n, name in ((4, "interleaved"), (2, "1f1b"))
    )
    assert made.memory == pytest.approx(plain.memory, rel=0.3) and made.memory > 0.9 * 2 * 4 * 256 * 256 * 4


def test_a_weight_that_two_stages_of_one_rank_read_has_one_sum_of_gradients():
    arrays = [RNG.standard_normal((16, 16)).astype(np.float32) / 4 for _ in range(3)]
    x = td.tensor(RNG.standard_normal((8, 16)).astype(np.float32))

    def make():
        weights = td.nn.ParameterList([td.tensor(a) for a in arrays])

        def loss(x):
            for k in (0, 1, 0, 2):  # of four stages, the first and the third are on rank 0
                x = dist.stage(td.tanh(x @ weights[k])) if k != 2 else td.tanh(x @ weights[k])
            return x.square().mean()

        return loss, (x,), weights

    check(make, Topology.processors(2), stages=4, micro_batches=2, schedule="interleaved")


def test_stages_may_have_different_numbers_of_ranks():
    check(SMALL, Topology.processors(3), stages=2, micro_batches=4)


def test_stages_may_compute_activations_again():
    check(SMALL, islands(SLOW), stages=2, micro_batches=4, recompute=True)


def test_little_memory_has_activations_computed_again():
    loss, args, _ = chain(4096, 16, 8)()
    plans = [
        td.parallelize(loss, args, Topology.processors(2), stages=2, micro_batches=4, recompute=again)
        for again in (False, True)
    ]
    kept, again = (plan.memory for plan in plans)
    assert again < 0.8 * kept and plans[0].seconds < plans[1].seconds
    chosen = td.parallelize(loss, args, Topology.processors(2), stages=2, micro_batches=4, memory_limit=1.05 * again)
    assert chosen.memory <= 1.05 * again and any(s.recompute for s in chosen.stages)


@pytest.mark.slow  # eight ranks
def test_pipeline_data_and_tensor_axes_together():
    check(SMALL, islands(SLOW, 2, 4), stages=2, micro_batches=2)


@pytest.mark.slow  # as others, with other numbers
def test_a_rank_for_each_stage():
    check(SMALL, islands(SLOW), stages=4, micro_batches=4)


@pytest.mark.slow
def test_micro_batches_without_a_pipeline():
    check(SMALL, islands(FAST), stages=1, micro_batches=4)


def test_a_loss_that_is_no_mean_gets_no_pipeline():
    """As above, but for a sum over rows: micro-batches would give another loss."""

    def work():
        loss, args, _ = BIG()
        return len(td.parallelize(lambda x: loss(x) * x.shape[0], args, islands(SLOW)).stages)

    assert dist.spawn(work, 4, engine="threads", timeout=300) == [1] * 4


def gpt():
    td.manual_seed(0)
    model = td.models.GPT2(vocabulary=32, context=4, layers=2, heads=2, width=8, dropout=0.0)
    tokens = td.tensor(np.random.default_rng(1).integers(0, 32, (4, 5)))
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    loss = lambda x, y: td.nn.functional.cross_entropy(model(x).reshape(-1, 32), y.reshape(-1))
    return loss, (x, y), model


@pytest.mark.slow  # it solves for each stage of a whole model
def test_tied_weights_of_a_model_nobody_planned_for():
    loss, args, model = gpt()
    whole = loss(*args)
    whole.backward()
    expected = {n: p.grad.numpy() for n, p in model.named_parameters()}

    def work():
        loss, args, model = gpt()
        plan = td.parallelize(loss, args, islands(SLOW), stages=2, micro_batches=2).apply(model)
        found = plan.step(*args).item()
        own = {id(p) for p in plan.parameters()}
        gradients = {n: p.grad.full_tensor().numpy() for n, p in model.named_parameters() if id(p) in own}
        return found, gradients, plan._pipe.sent == plan.sent(dist.get_rank())

    results = dist.spawn(work, 4, engine="threads", timeout=300)
    assert set(results[0][1]) & set(results[2][1]) == {"wte.weight"}
    assert set(results[0][1]) | set(results[2][1]) == set(expected)
    for found, gradients, as_predicted in results:
        assert found == pytest.approx(whole.item(), rel=1e-5) and as_predicted
        for name, g in gradients.items():
            np.testing.assert_allclose(g, expected[name], rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_plan_of_stages_is_kept_shown_and_told(tmp_path):
    loss, args, _ = SMALL()
    ranks = Topology.processors(2)
    plan = td.parallelize(loss, args, ranks, stages=2, micro_batches=4)
    plan.save(tmp_path / "plan.json")
    again = dist.load_plan(tmp_path / "plan.json", loss, args, ranks)
    text = plan.explain()
    assert again.explain() == text and "stage 1 on ranks [1]" in text and "idle" in text
    page = plan.view(tmp_path / "plan.html")
    assert (tmp_path / "plan.html").read_text() == page and "fully sharded" in page and page.count('class="stage"') == 2
    assert "traceEvents" in plan.timeline.perfetto()


@pytest.mark.slow  # it tries all
@pytest.mark.parametrize("link", [SLOW, FAST])
def test_stages_are_the_best_of_all(link):
    loss, args, _ = chain(32, 32, 4)()
    topology, count = islands(link), 4
    traced = trace_marked(loss, micro_batch(args, 32, count))
    layer_of, layers = assign(traced.graph, set(traced.weights), 4)
    until = time.monotonic() + 300
    found = Intervals(traced, layer_of, layers, count, topology, state=2.0, times=None, until=until, gap=1e-6,
                      memory_limit=None, solved={}, recompute=False)  # fmt: skip

    def seconds(stages):
        micro = [f.micro for f in stages]
        return sum(micro) + (count - 1) * max(micro) + max(f.once for f in stages)

    def rows(layer, rank):
        """All ways to have the layers from one on on the ranks from one on."""
        if layer == layers and rank == topology.devices:
            yield ()
        for end in range(layer + 1, layers + 1):
            for n in (1, 2, 4):
                if rank % n == 0 and rank + n <= topology.devices:
                    for f in found.options(layer, end, n, rank):
                        yield from ((f, *rest) for rest in rows(end, rank + n))

    best = min(map(seconds, rows(0, 0)))
    assert min(seconds([f for *_, f in row.stages]) for row in best_rows(found, 4)) == pytest.approx(best, rel=1e-9)
