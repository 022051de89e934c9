"""Latency and bandwidth between ranks, and the size of buckets that follows."""

import math

import tandem as td
from tandem import distributed as dist
from tandem.distributed.group import ProcessGroup, group_of
from tandem.distributed.links import link_of
from tandem.distributed.topology import Link


def test_all_ranks_get_the_same_numbers_and_measure_once():
    def work():
        group = group_of(None, "test")
        first = link_of(group)
        return first, link_of(group) is first

    (a, once), (b, again) = dist.spawn(work, 2, engine="threads", timeout=60)
    assert a == b and once and again
    assert a.latency > 0 and math.log2(a.bandwidth) % 1 == 0


def test_a_bucket_costs_as_much_in_latencies_as_the_last_one_takes():
    link = Link(bandwidth=1e8, latency=1e-4)
    total = 1e8
    size = link.bucket(total)
    assert math.isclose(total / size * link.latency, size / link.bandwidth)
    cost = lambda s: total / s * link.latency + s / link.bandwidth
    assert cost(size) < min(cost(size / 2), cost(size * 2))


def test_buckets_follow_from_the_link(monkeypatch):
    monkeypatch.setattr(ProcessGroup, "runs_beside", lambda self, x: True)

    def work(latency):
        dist.data_parallel(td.nn.Linear(2, 2))  # which measures
        group_of(None, "test").links["cpu"] = Link(1e8, latency)
        model = dist.data_parallel(td.nn.Sequential(*(td.nn.Linear(50, 50) for _ in range(8))))
        return model.__dict__["_data_parallel"].bucket_bytes

    (quick, _), (slow, _) = (dist.spawn(work, 2, (s,), engine="threads", timeout=60) for s in (1e-6, 1e-4))
    total = 8 * 4 * (50 * 50 + 50)
    assert math.isclose(quick, math.sqrt(total * 100)) and math.isclose(slow, 10 * quick)
