"""Plans that are predicted to take longer do take longer, on the processes at hand."""

import statistics
import time

import pytest

import tandem as td
from tandem import distributed as dist

PLANS = {
    "tensor parallel": {"way": "tensor parallel"},
    "data parallel": {"way": "data parallel"},
    "fully sharded": {"way": "fully sharded"},
    "two micro-batches": {"stages": 2, "micro_batches": 2},
    "eight micro-batches": {"stages": 2, "micro_batches": 8},
    "a row at a time": {"stages": 2, "micro_batches": 64},
}
APART = 1.35  # predictions that are closer than this may come in any order


def seconds_of_plans():
    """Predicted and measured seconds of a step by each plan."""
    td.manual_seed(0)
    topology = dist.measured()
    args = (td.randn(64, 1024),)
    found = {}
    for name, options in PLANS.items():
        model = td.nn.Sequential(*[td.nn.Linear(1024, 1024) for _ in range(6)])
        plan = td.parallelize(lambda x, model=model: model(x).square().mean(), args, topology, **options)
        optimizer = td.optim.Adam(plan.apply(model).parameters(), lr=1e-4)
        update = td.compile(optimizer.step)
        times = []
        for _ in range(9):
            dist.barrier()
            began = time.perf_counter()
            plan.step(*args).item()
            update()
            optimizer.zero_grad()
            dist.barrier()
            times.append(time.perf_counter() - began)
        found[name] = plan.seconds, statistics.median(times[3:])
    return found


@pytest.mark.slow  # it measures
def test_plans_come_in_the_predicted_order():
    found = dist.spawn(seconds_of_plans, 2, timeout=300)[0]
    print(found)
    names = sorted(found, key=lambda n: found[n][0])
    apart = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if found[b][0] > APART * found[a][0]]
    assert len(found) >= 6 and len(apart) >= 5
    wrong = [(a, b) for a, b in apart if found[a][1] > 1.1 * found[b][1]]
    assert not wrong, (wrong, found)
