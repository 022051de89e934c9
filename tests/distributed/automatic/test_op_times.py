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
