"""Devices that fail during long training: what checkpoints and restarts cost."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tandem.errors import ValueRangeError


@dataclasses.dataclass(frozen=True)
class FailuresReport:
    """useful: the part of the time that training goes on and is not lost; failures: how many there were."""

    useful: float
    failures: int
    interval: float


def simulate_failures(
    devices: int, hours_between: float, *, checkpoint: float, restart: float, interval: float | None = None, days: float = 30.0,
    seed: int = 0,
) -> FailuresReport:  # fmt: skip
    """Training of so many days in which each device fails once in `hours_between` hours on average.

    checkpoint: seconds that writing one holds training up; restart: seconds from a failure to training again
    interval: seconds between checkpoints; the best one (Young's rule) by default

    >>> from tandem.distributed.simulator import simulate_failures
    >>> report = simulate_failures(1024, 20_000, checkpoint=30, restart=300)
    >>> report.useful > 0.9
    True
    """
    if devices < 1 or hours_between <= 0 or days <= 0:
        raise ValueRangeError("simulate_failures", "devices, hours_between and days must be positive")
    mean = hours_between * 3600.0 / devices
    interval = math.sqrt(2.0 * checkpoint * mean) if interval is None else interval
    if interval <= 0:
        raise ValueRangeError("simulate_failures", f"interval={interval} must be positive")
    rng = np.random.default_rng(seed)
    end, now, kept, failures = days * 86400.0, 0.0, 0.0, 0
    fails = rng.exponential(mean)
    while now < end:
        done = now + interval + checkpoint
        if fails < done:  # what was computed since the last checkpoint is lost
            failures += 1
            now = fails + restart
            fails = now + rng.exponential(mean)
        else:
            now, kept = done, kept + interval
    return FailuresReport(min(kept / now, 1.0), failures, interval)
