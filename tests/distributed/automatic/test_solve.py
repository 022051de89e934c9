"""The cheapest way to divide."""

import dataclasses
import itertools

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist
from tandem.distributed.automatic.costs import Costs
from tandem.distributed.automatic.solve import solve
from tandem.distributed.automatic.step import whole_step
from tandem.distributed.automatic.strategies import placements_of, strategies_of
from tandem.distributed.sharding.layout import Grid
from tandem.distributed.topology import Link, Topology
from tandem.distributed.traced import trace_loss

R, S = dist.Replicate(), dist.Shard


RNG = np.random.default_rng(0)


def weights(*shapes):
    return [td.tensor(RNG.standard_normal(s).astype(np.float32) * 0.2, requires_grad=True) for s in shapes]


def batch(*shape):
    return td.tensor(RNG.standard_normal(shape).astype(np.float32))


def mlp(rows, width, hidden):
    w1, w2 = weights((width, hidden), (hidden, width))
    return (lambda x: (td.relu(x @ w1) @ w2).square().mean()), (batch(rows, width),), [w1, w2]


def test_a_large_layer_is_divided_by_columns_and_then_by_rows():
    loss, args, _ = mlp(4, 256, 2048)
    plan = td.parallelize(loss, args, (2,))
    assert plan.optimal and plan.parameter_placements == [(S(1),), (S(0),)]
    large = [n for _, n in plan.moved if n > 4]
    assert large == [4 * 256 * 4]  # what both products add up to: one all-reduce forward; x needs no gradient
    assert set(plan.collectives) == {"all_reduce"}


def test_attention_is_divided_by_heads():
    width, heads, t = 128, 4, 4
    wq, wk, wv, wo = weights(*[(width, width)] * 4)

    def loss(x):
        split = lambda w: (x @ w).reshape(t, heads, width // heads).permute(1, 0, 2)
        scores = td.softmax(split(wq) @ split(wk).transpose(1, 2), -1)
        return ((scores @ split(wv)).permute(1, 0, 2).reshape(t, width) @ wo).square().mean()

    plan = td.parallelize(loss, (batch(t, width),), (2,))
    assert plan.optimal and plan.parameter_placements == [(S(1),), (S(1),), (S(1),), (S(0),)]
    assert [n for _, n in plan.moved if n > 4] == [t * width * 4]


def test_a_large_batch_is_divided_and_gradients_are_summed():
    loss, args, _ = mlp(4096, 16, 32)
    plan = td.parallelize(loss, args, (2,))
    assert plan.argument_placements == [(S(0),)] and plan.parameter_placements == [(R,), (R,)]
    assert sorted(n for _, n in plan.moved) == [4, 16 * 32 * 4, 16 * 32 * 4]


def test_little_memory_divides_weights_and_gathers_them():
    loss, args, w = mlp(65536, 64, 128)
    usual = Topology.processors(2)
    slow = dataclasses.replace(usual, device=dataclasses.replace(usual.device, launch=1e-4))  # few collectives are best
    plain = td.parallelize(loss, args, (2,), topology=slow)
    assert plain.parameter_placements == [(R,), (R,)]
    limit = plain.memory - 4 * w[0].numel()  # of a quarter of what the weights take
    little = td.parallelize(loss, args, (2,), topology=slow, memory_limit=limit)
    assert little.memory <= limit and little.seconds > plain.seconds
    assert little.argument_placements == [(S(0),)] and "all_gather" in little.collectives


def test_the_plan_changes_with_the_link():
    loss, args, _ = mlp(64, 128, 128)
    fast = Topology.processors(2)
    slow = dataclasses.replace(fast, inside=Link(1e5, 1e-1))
    assert td.parallelize(loss, args, (2,), topology=fast).bytes > 0
    assert td.parallelize(loss, args, (2,), topology=slow).bytes == 0  # each rank computes all


def cheapest(step, costs):
    """By trying all."""
    graph = step.graph
    nodes = [n for n in graph.nodes if n.op.name != "input"]
    options = [strategies_of(n, costs.grid) for n in nodes]
    inputs = [placements_of(v, costs.grid) for v in graph.inputs]
    whole = (R,) * len(costs.grid.shape)
    best = np.inf
    for lies in itertools.product(*inputs):
        for chosen in itertools.product(*options):
            at = dict(zip(graph.inputs, lies, strict=True))
            seconds, moves = 0.0, set()
            for n, s in zip(nodes, chosen, strict=True):
                at.update(zip(n.outputs, s.outputs, strict=True))
                seconds += costs.compute(n, s)
            for n, s in zip(nodes, chosen, strict=True):
                moves.update(zip(n.inputs, s.inputs, strict=True))
            wanted = [whole, *(at[graph.inputs[i]] for i in step.weights)]
            moves.update(zip(graph.outputs, wanted, strict=True))
            seconds += sum(costs.move(v.type, at[v], q) for v, q in moves if at[v] != q)
            seconds += sum(costs.update(graph.inputs[i].type, at[graph.inputs[i]]) for i in step.weights)
            best = min(best, seconds)
    return best


@pytest.mark.slow  # it tries all
@pytest.mark.parametrize("rows, width, hidden", [(2, 4, 64), (256, 4, 4), (16, 32, 8)])
def test_it_is_the_cheapest_of_all(rows, width, hidden):
    (w,) = weights((width, hidden))
    step = whole_step(trace_loss("parallelize", lambda x: (x @ w).sum(), (batch(rows, width),)))
    costs = Costs(Grid((2,), (0,), (0,)), Topology.processors(2))
    found = solve(step, costs, None, 10.0, 1e-6)
    assert found.optimal and found.seconds == pytest.approx(cheapest(step, costs), rel=1e-6)
    assert found.bound == pytest.approx(found.seconds, rel=1e-4)
