"""The search against the integer program, on graphs made at random."""

import random

import pytest

from tandem.distributed.placer.costs import PlacementCosts
from tandem.distributed.placer.exact import solve_exactly
from tandem.distributed.placer.search import Search
from tandem.distributed.placer.simulate import ranks, simulate
from tandem.distributed.placer.units import Flow, Problem, Unit
from tandem.distributed.topology import DeviceModel, Link

DEVICE = DeviceModel(1e9, 1e9, 1e12)


def make(seed, units, devices=2, density=0.3, bandwidth=1e6):
    rng = random.Random(seed)
    speed = [1.0 + 0.5 * rng.random() for _ in range(devices)]
    made = []
    for i in range(units):
        work = 1 + 9 * rng.random()
        made.append(Unit([], [work / s for s in speed], group=i))
    flows = []
    for i in range(units):
        readers = tuple(j for j in range(i + 1, units) if rng.random() < density)
        if readers:
            flows.append(Flow(None, rng.randrange(1, 5_000_000), i, readers))
    allowed = [list(range(devices)) for _ in range(units)]
    return Problem(
        made,
        flows,
        allowed,
        [f"d{i}" for i in range(devices)],
        PlacementCosts([DEVICE] * devices, Link(bandwidth, 0.01)),
    )


def best_by_trying(problem):
    urgency, best = ranks(problem), None
    n, d = len(problem.allowed), len(problem.devices)
    for code in range(d**n):
        placement = [code // d**g % d for g in range(n)]
        seconds = simulate(problem, placement, urgency, shared=False).seconds
        best = seconds if best is None else min(best, seconds)
    return best


@pytest.mark.parametrize("seed", range(8))
def test_search_comes_close_to_the_proved_optimum(seed):
    problem = make(seed, 7)
    search = Search(problem, shared=False)
    _, outcome = search.run(2.0)
    exact = solve_exactly(problem, outcome.seconds, 20.0)
    assert exact.optimal
    assert exact.bound <= outcome.seconds * (1 + 1e-6)
    assert outcome.seconds <= 1.15 * exact.seconds
    assert outcome.seconds <= 1.03 * best_by_trying(problem)
    alone = min(search.value(p)[1].seconds for p in search.one_device().values())
    assert outcome.seconds <= alone


def test_a_chain_stays_together_and_a_fan_spreads():
    work = lambda i: Unit([], [1.0, 1.0, 1.0], group=i)
    costs = PlacementCosts([DEVICE] * 3, Link(1e6, 0.0))
    chain = Problem(
        [work(i) for i in range(5)],
        [Flow(None, 10**6, i, (i + 1,)) for i in range(4)],
        [[0, 1, 2]] * 5,
        ["a", "b", "c"],
        costs,
    )
    placement, outcome = Search(chain).run(1.0)
    assert len(set(placement)) == 1 and outcome.seconds == 5.0
    fan = Problem([work(i) for i in range(6)], [], [[0, 1, 2]] * 6, ["a", "b", "c"], costs)
    placement, outcome = Search(fan).run(1.0)
    assert outcome.seconds == 2.0 and sorted(placement) == [0, 0, 1, 1, 2, 2]


def test_a_value_crosses_once_and_links_pass_one_value_at_a_time():
    work = [Unit([], [1.0, 1.0], group=i) for i in range(4)]
    costs = PlacementCosts([DEVICE] * 2, Link(1e6, 0.0))
    one = Problem(work, [Flow(None, 10**6, 0, (1, 2))], [[0, 1]] * 4, ["a", "b"], costs)
    outcome = simulate(one, [0, 1, 1, 0], ranks(one))
    assert outcome.bytes == 10**6 and outcome.seconds == 4.0  # 1, cross, 1, 1
    two = Problem(work, [Flow(None, 10**6, 0, (2,)), Flow(None, 10**6, 1, (3,))], [[0, 1]] * 4, ["a", "b"], costs)
    assert simulate(two, [0, 0, 1, 1], ranks(two)).seconds == 4.0
    late = Problem(
        [Unit([], [0.5, 0.5], group=0), Unit([], [0.5, 0.5], group=1), *work[2:]],
        [Flow(None, 10**6, 0, (2,)), Flow(None, 10**6, 1, (3,))], [[0, 1]] * 4, ["a", "b"], costs,
    )  # fmt: skip
    assert simulate(late, [0, 0, 1, 1], ranks(late)).seconds == 3.5
    assert simulate(late, [0, 0, 1, 1], ranks(late), shared=False).seconds == 3.5
    busy = simulate(late, [0, 0, 1, 1], ranks(late))
    assert busy.busy == [1.0, 2.0] and busy.idle == [2.5, 1.5]


def test_devices_that_share_a_host_are_used_where_that_still_pays():
    def plan(together):
        costs = PlacementCosts([DEVICE] * 2, Link(1e9, 0.0), together=together)
        problem = Problem([Unit([], [1.0, 1.0], group=i) for i in range(4)], [], [[0, 1]] * 4, ["a", "b"], costs)
        return Search(problem).run(0.5)

    placement, outcome = plan(0.8)
    assert outcome.seconds == pytest.approx(2.5) and sorted(placement) == [0, 0, 1, 1]
    placement, outcome = plan(0.4)  # two at 0.4 are slower than one
    assert outcome.seconds == 4.0 and len(set(placement)) == 1
