"""Proved placements."""

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
