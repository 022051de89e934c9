"""Placements played through."""

from tandem.distributed.placer.costs import PlacementCosts
from tandem.distributed.placer.simulate import ranks, simulate
from tandem.distributed.placer.units import Flow, Problem, Unit
from tandem.distributed.topology import DeviceModel, Link

DEVICE = DeviceModel(1e9, 1e9, 1e12)


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
