"""Numbers of the ranks at hand."""

import tandem as td
from tandem import distributed as dist


def test_all_ranks_get_the_same_numbers():
    results = dist.spawn(lambda: dist.measured(repeats=1), 2, engine="threads", timeout=300)
    assert results[0] == results[1] and results[0].devices == 2
    found = results[0]
    assert min(found.device.operations, found.device.bandwidth, found.inside.bandwidth, found.inside.latency) > 0


def test_plans_are_made_by_them():
    def work():
        w = td.ones(64, 64, requires_grad=True)
        mesh = dist.Mesh(2)
        plan = td.parallelize(
            lambda x: (x @ w).square().mean(), (td.ones(8, 64),), mesh, topology=dist.measured(repeats=1)
        )
        return plan.parameter_placements, plan.step(td.ones(8, 64)).item()

    first, second = dist.spawn(work, 2, engine="threads", timeout=300)
    assert first == second and first[1] == 64.0**2
