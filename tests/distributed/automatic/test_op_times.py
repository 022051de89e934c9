"""Times of operators are measured once, on parts as plans have them, and kept."""

import dataclasses

import numpy as np
import pytest

import tandem as td
from tandem.distributed.automatic.op_times import OpTimes, part_graph
from tandem.distributed.automatic.step import whole_step
from tandem.distributed.automatic.strategies import strategies_of
from tandem.distributed.sharding.layout import Grid
from tandem.distributed.topology import Topology
from tandem.distributed.traced import trace_loss
from tandem.graph.work import traffic_of


def step():
    w = td.tensor(np.ones((8, 16), np.float32), requires_grad=True)
    return (lambda x: td.relu(x @ w * 2.0).sum()), (td.ones(4, 8),)


def topology(times) -> Topology:
    ranks = Topology.processors(2)
    return dataclasses.replace(ranks, device=dataclasses.replace(ranks.device, times=times))


def test_a_second_process_measures_nothing(tmp_path):
    loss, args = step()
    first = OpTimes(str(tmp_path / "times" / "machine"))
    plan = td.parallelize(loss, args, (2,), topology=topology(first))
    assert first.measured > 0 and plan.seconds > 0
    again = OpTimes(first.path)
    assert again.known == first.known
    assert td.parallelize(loss, args, (2,), topology=topology(again)).seconds == plan.seconds and again.measured == 0
    slow = OpTimes(first.path, slower=100.0)
    assert td.parallelize(loss, args, (2,), topology=topology(slow)).seconds > plan.seconds


def test_what_is_measured_is_a_ranks_part():
    graph = whole_step(trace_loss("parallelize", *step())).graph
    product = next(n for n in graph.nodes if n.op.name == "matmul")
    grid = Grid((2,), (0,), (0,))
    shapes = {tuple(v.shape for v in part_graph(product, s, grid).inputs) for s in strategies_of(product, grid)}
    assert shapes == {((4, 8), (8, 16)), ((2, 8), (8, 16)), ((4, 8), (8, 8)), ((4, 4), (4, 16))}


def test_what_passes_between_fused_operators_is_not_in_memory():
    graph = whole_step(trace_loss("parallelize", *step())).graph
    moved = {n.op.name: b for n, b in traffic_of(graph).items() if n.op.name in ("matmul", "relu", "mul")}
    assert moved["relu"] == pytest.approx(0.0)  # between the product's scaling and the sum


def test_operands_in_no_cache_are_read_from_memory_which_ranks_share():
    graph = whole_step(trace_loss("parallelize", *step())).graph
    product = next(n for n in graph.nodes if n.op.name == "matmul")
    grid = Grid((2,), (0,), (0,))
    strategy = next(iter(strategies_of(product, grid)))
    times = OpTimes(slower=2.0, memory_slower=3.0)
    times.seconds(product, strategy, grid)
    (content,) = times.known
    times.known[content] = 1.0, 1.5
    assert times.seconds(product, strategy, grid) == 2.0
    assert times.seconds(product, strategy, grid, cold=True) == 2.0 + 3.0 * 0.5


def test_what_does_not_fit_in_caches_is_cold():
    loss, args = step()
    times = OpTimes()
    asked = []
    times.seconds = lambda node, strategy, grid, cold=False: asked.append(cold)
    for cache in (1e9, 100.0):
        ranks = topology(times)
        small = dataclasses.replace(ranks, device=dataclasses.replace(ranks.device, cache=cache))
        td.parallelize(loss, args, (2,), topology=small)
        assert asked and set(asked) == {cache < 1000}
        asked.clear()
