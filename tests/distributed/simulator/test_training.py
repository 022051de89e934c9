"""Simulated training: published results, and what changes when the cluster or the plan does."""

import dataclasses
import json

import pytest

import tandem as td
from tandem.distributed import Topology
from tandem.distributed.simulator import Plan, Transformer, plan_training, simulate_training

# Narayanan et al., Efficient large-scale language model training on GPU clusters (2021), table 1: A100, 8 a node, recomputation;
# (layers, width, heads, tensor, pipeline, devices, batch, reported teraoperations a second and device)
PUBLISHED = [
    (24, 2304, 24, 1, 1, 32, 512, 137),
    (30, 3072, 32, 2, 1, 64, 512, 138),
    (36, 4096, 32, 4, 1, 128, 512, 142),
    (40, 6144, 48, 8, 1, 256, 1024, 135),
    (48, 8192, 64, 8, 2, 512, 1536, 138),
    (60, 10240, 80, 8, 4, 1024, 1792, 140),
    (80, 12288, 96, 8, 8, 1536, 2304, 148),
    (96, 16384, 128, 8, 16, 1920, 2160, 155),
    (105, 20480, 128, 8, 35, 2520, 2520, 163),
    (128, 25600, 160, 8, 64, 3072, 3072, 163),
]


@pytest.mark.parametrize("layers, width, heads, tensor, pipeline, devices, batch, reported", PUBLISHED)
def test_published_rates_come_out_within_a_tenth(layers, width, heads, tensor, pipeline, devices, batch, reported):
    model, cluster = Transformer(layers, width, heads), Topology.a100(devices // 8)
    data = devices // tensor // pipeline
    plans = [Plan(data, tensor, pipeline, m) for m in (1, 2, 4) if batch % (data * m) == 0]
    best = min((simulate_training(model, p, cluster, batch) for p in plans), key=lambda r: r.time)
    assert best.fits and best.operations / 1e12 == pytest.approx(reported, rel=0.1)


MODEL = Transformer(layers=24, width=2048, heads=16)


def step(topology=None, slow=None, **plan):
    return simulate_training(MODEL, Plan(**plan), topology or Topology.a100(4), 128, slow)


@pytest.mark.parametrize("pipeline, count", [(2, 4), (8, 32), (16, 16)])
def test_the_bubble_of_equal_stages_is_the_known_one(pipeline, count):
    """Where the scores of the vocabulary and messages take next to nothing."""
    free = dataclasses.replace(
        Topology.a100(128), inside=td.distributed.Link(1e18, 0.0), between=td.distributed.Link(1e18, 0.0)
    )
    model = Transformer(layers=96, width=2048, heads=16, vocabulary=16)
    report = simulate_training(model, Plan(pipeline=pipeline), free, count)
    assert report.timeline.idle == pytest.approx((pipeline - 1) / (count + pipeline - 1), rel=0.01)


def test_thousands_of_devices():
    model = Transformer(layers=96, width=12288, heads=96)
    small, large = (
        simulate_training(model, Plan(data=d, tensor=8, pipeline=8), Topology.a100(8 * d), 48 * d) for d in (8, 64)
    )
    assert large.plan.devices == 4096 and large.fits and 0.9 < small.time / large.time <= 1.0


def test_a_slow_device_holds_all_up():
    plain, slow = step(data=8, pipeline=4), step(data=8, pipeline=4, slow={27: 1.5})
    assert 1.3 < slow.time / plain.time < 1.55
    assert step(data=8, pipeline=4, slow={31: 1.0}).time == plain.time


def test_a_slow_link_makes_tensor_groups_over_nodes_bad_and_pipelines_good():
    cluster = Topology.a100(4)
    slower = dataclasses.replace(cluster, between=td.distributed.topology.Link(1e9, 5e-5))
    wide, deep = {"tensor": 16, "data": 2}, {"tensor": 8, "pipeline": 4}
    ratio = lambda c: step(c, **wide).time / step(c, **deep).time
    assert ratio(slower) > 3 * ratio(cluster)


def test_memory_is_divided_by_stages_and_tensors_and_saved_by_recomputing():
    memory = {
        name: step(**plan).memory
        for name, plan in {
            "plain": {"data": 4}, "deep": {"pipeline": 4}, "wide": {"tensor": 4}, "kept": {"data": 4, "recompute": False},
            "sharded": {"data": 4, "shard_state": True},
        }.items()
    }  # fmt: skip
    assert max(memory["deep"], memory["wide"], memory["sharded"]) < memory["plain"] < memory["kept"]


def test_bytes_are_those_of_the_collectives():
    report = step(data=2, tensor=4, micro_batch=2)
    boundary = 2 * 2048 * 2048 * 2
    assert report.bytes["tensor"] == 32 * 24 * 6 * 2 * 3 / 4 * boundary
    assert report.bytes["pipeline"] == 0
    parameters = MODEL.parameters / 4
    assert report.bytes["data"] == pytest.approx(2 * 1 / 2 * parameters * 2)


def test_the_report_tells():
    report = step(data=2, pipeline=4)
    assert "pipeline 4" in str(report) and "utilisation" in str(report)
    assert report.days(1e9) == pytest.approx(1e9 / (128 * 2048) * report.time / 86400)
    assert len(json.loads(report.timeline.perfetto())["traceEvents"]) > 100


def test_plans_use_all_devices_fit_and_come_in_order():
    reports = plan_training(MODEL, Topology.a100(2), 64)
    assert [r.time for r in reports] == sorted(r.time for r in reports)
    assert all(r.fits and r.plan.devices == 16 for r in reports)


def test_the_best_plan_is_no_worse_than_any_simple_one():
    best = plan_training(MODEL, Topology.a100(2), 64)[0].time
    for plan in ({"data": 16}, {"pipeline": 4, "data": 4}, {"tensor": 8, "data": 2}, {"data": 16, "recompute": False}):
        for micro_batch in (1, 2, 4):
            report = simulate_training(MODEL, Plan(micro_batch=micro_batch, **plan), Topology.a100(2), 64)
            assert not report.fits or best <= report.time * (1 + 1e-9)


def test_impossible_plans_are_refused():
    for text, plan in {
        "needs 64 devices; there are 32": {"data": 64},
        "no multiple of 3 replicas": {"data": 3},
        "24 layers cannot be divided evenly among 5": {"pipeline": 5},
        "16 heads cannot": {"tensor": 3},
    }.items():
        with pytest.raises(td.errors.ValueRangeError, match=text):
            step(**plan)
    with pytest.raises(td.errors.ValueRangeError, match="do not fit on 8 devices"):
        plan_training(Transformer(96, 12288, 96), Topology.a100(1), 64)
    with pytest.raises(td.errors.ValueRangeError, match="0 nodes"):
        Topology.a100(0)
