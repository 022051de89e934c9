"""Simulated workers: order statistics, backup workers, asynchronous training."""

import pytest

import tandem as td
from tandem.distributed.simulator import simulate_failures, simulate_workers, straggling


def test_equal_workers_take_what_they_take():
    report = simulate_workers(4, 1.0, transfer=0.1, steps=3)
    assert report.times == pytest.approx((1.5, 1.5, 1.5))
    assert report.dropped == 0 and report.throughput == pytest.approx(12 / 4.5)


def test_one_that_sleeps_costs_nothing_with_a_backup():
    sleeps = lambda rng, worker: 10.0 if worker == 3 else 1.0
    assert simulate_workers(5, sleeps, steps=10).median == 10.0
    report = simulate_workers(5, sleeps, needed=4, steps=50)
    assert set(report.times) == {1.0} and report.dropped == pytest.approx(5 / 205)


def test_backup_workers_have_an_optimum():
    compute = straggling(1.3, spread=0.03, often=0.05, slow=1.8)
    median = [simulate_workers(50 + b, compute, needed=50, transfer=0.01, steps=400).median for b in range(8)]
    best = median.index(min(median))
    assert 2 <= best <= 6 and median[0] > 1.15 * median[best]
    assert median[7] > median[best]  # more load on servers
    gain = [median[0] / m * 50 / (50 + b) for b, m in enumerate(median)]
    assert 1 <= gain.index(max(gain)) <= best and gain[7] < max(gain)


def test_fair_links_are_shared_by_all_transfers_under_way():
    assert simulate_workers(4, 1.0, transfer=0.125, steps=3, sharing="fair").times == pytest.approx((2.0, 2.0, 2.0))
    late = lambda rng, worker: (1.0, 1.25)[worker]  # both push for half a second if alone
    report = simulate_workers(2, late, transfer=0.5, steps=1, sharing="fair")
    assert report.times == pytest.approx((1.0 + 1.25 + 0.75,))  # the other one has a quarter left, at half the speed
    slow = simulate_workers(1, 1.0, transfer=0.125, alone=0.5, steps=1, sharing="fair")
    assert slow.times == pytest.approx((2.0,))  # its own link, both ways


def test_backup_workers_at_the_size_of_the_papers_figure():
    """Figure 8 of the OSDI'16 paper: t(4) = 1.93 s, the best at 3 per resource (+9.5 %), 5 no better. Inputs: docs/simulator.md"""
    times = [
        simulate_workers(
            50 + b, straggling(1.4, 0.01, 0.0785, 1.48), needed=50, transfer=0.0051, alone=0.087, sharing="fair", steps=150,
            seed=1,
        ).median
        for b in range(8)
    ]  # fmt: skip
    assert times[:5] == sorted(times[:5], reverse=True) and times[4] == pytest.approx(1.93, rel=0.02)
    assert times[5] > 0.997 * times[4] and times[7] > times[6] > times[4]
    gain = [times[0] / t * 50 / (50 + b) for b, t in enumerate(times)]
    assert gain.index(max(gain)) == 3 and 1.07 < max(gain) < 1.14


def test_more_workers_bring_less_and_less():
    for mode in ("synchronous", "asynchronous"):
        rate = [
            simulate_workers(n, straggling(1.5), mode=mode, transfer=0.008, steps=40).throughput
            for n in (25, 50, 100, 200)
        ]
        assert rate == sorted(rate)
        assert rate[3] / rate[2] < rate[1] / rate[0] < 2.01


def test_asynchronous_workers_are_faster_and_stale():
    together, apart = (
        simulate_workers(20, straggling(1.0), mode=m, transfer=0.002, steps=50) for m in ("synchronous", "asynchronous")
    )
    assert apart.throughput > together.throughput and together.staleness == 0 and 10 < apart.staleness < 30


def test_the_best_interval_of_checkpoints_is_about_youngs():
    useful = lambda factor: (
        simulate_failures(1024, 20_000, checkpoint=30, restart=300, interval=factor * best, days=300).useful
    )
    best = simulate_failures(1024, 20_000, checkpoint=30, restart=300).interval
    assert useful(1.0) > useful(8.0) and useful(1.0) > useful(1 / 8)
    assert simulate_failures(8, 1e9, checkpoint=0.001, restart=1).useful > 0.999


def test_bad_numbers_are_refused():
    with pytest.raises(td.errors.ValueRangeError, match="needed=5 must lie between 1 and 4"):
        simulate_workers(4, 1.0, needed=5)
    with pytest.raises(td.errors.ValueRangeError, match="sharing='never'"):
        simulate_workers(4, 1.0, sharing="never")
    with pytest.raises(td.errors.ValueRangeError, match="mode='often'"):
        simulate_workers(4, 1.0, mode="often")
    with pytest.raises(td.errors.ValueRangeError, match="interval=0"):
        simulate_failures(4, 1.0, checkpoint=1, restart=1, interval=0)
