"""Plans of td.parallelize, simulated."""

import dataclasses

import pytest

import tandem as td
from tandem.distributed import Link, Topology
from tandem.distributed.simulator import simulate_plan


@pytest.fixture(scope="module")
def plan():
    weights = [td.ones(256, 256, requires_grad=True) for _ in range(4)]

    def deep(x):
        for w in weights:
            x = td.relu(x @ w)
        return x.square().mean()

    islands = dataclasses.replace(
        Topology.processors(4), nodes=2, per_node=2, inside=Link(1e10, 1e-7), between=Link(1e8, 1e-6)
    )
    return td.parallelize(deep, (td.ones(256, 256),), islands, stages=2, micro_batches=8)


def test_a_step_as_planned_takes_what_the_plan_says(plan):
    report = simulate_plan(plan)
    assert report.time == plan.seconds and report.timeline.total == plan.timeline.total
    assert (
        report.memory == plan.memory and report.bytes > 0 and 0 < report.utilisation < 1 - report.timeline.idle + 1e-9
    )
    assert "ms a step" in str(report)


def test_a_slow_rank_holds_its_stage_up_and_the_others_wait(plan):
    before, after = simulate_plan(plan), simulate_plan(plan, slow={3: 2.0})
    assert 1.25 < after.time / before.time < 2.0  # messages and the other stage take what they took
    stage = next(i for i, s in enumerate(plan.stages) if 3 in s.place.ranks)
    waits = lambda report, row: 1 - sum(x.end - x.begin for x in report.timeline.rows[row]) / report.timeline.total
    assert waits(after, 1 - stage) > waits(before, 1 - stage) and waits(after, stage) < waits(before, stage)
    assert after.utilisation < before.utilisation


def test_slow_links_show_where_stages_wait_for_messages(plan):
    assert simulate_plan(plan, links=20.0).time > simulate_plan(plan).time


def test_bad_numbers_are_refused(plan):
    with pytest.raises(td.ValueRangeError, match="9 is no rank of the plan, which has 4"):
        simulate_plan(plan, slow={9: 2.0})
    with pytest.raises(td.ValueRangeError, match="links=0 must be positive"):
        simulate_plan(plan, links=0)
