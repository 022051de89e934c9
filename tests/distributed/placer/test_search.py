"""The search against the integer program, on graphs made at random."""

import pytest

from tandem.distributed.placer.costs import PlacementCosts
from tandem.distributed.placer.search import Search
from tandem.distributed.placer.units import Flow, Problem, Unit
from tandem.distributed.topology import DeviceModel, Link

DEVICE = DeviceModel(1e9, 1e9, 1e12)


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


def test_devices_that_share_a_host_are_used_where_that_still_pays():
    def plan(together):
        costs = PlacementCosts([DEVICE] * 2, Link(1e9, 0.0), together=together)
        problem = Problem([Unit([], [1.0, 1.0], group=i) for i in range(4)], [], [[0, 1]] * 4, ["a", "b"], costs)
        return Search(problem).run(0.5)

    placement, outcome = plan(0.8)
    assert outcome.seconds == pytest.approx(2.5) and sorted(placement) == [0, 0, 1, 1]
    placement, outcome = plan(0.4)  # two at 0.4 are slower than one
    assert outcome.seconds == 4.0 and len(set(placement)) == 1
