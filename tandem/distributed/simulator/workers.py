"""Workers and parameter servers, simulated: asynchronous, synchronous, and synchronous with backup workers.

A worker pulls the parameters, computes, pushes gradients, and begins again. Servers pass a certain number of bytes a second on, in
the order in which they are asked for. A synchronous step ends when the first `needed` gradients of that step have arrived;
gradients of a step that is over are dropped, and their worker goes on with the present step.
"""

from __future__ import annotations

import dataclasses
import heapq
import statistics

import numpy as np

from tandem.errors import ValueRangeError


@dataclasses.dataclass(frozen=True)
class WorkersReport:
    """What workers reached.

    times: seconds from step to step (synchronous), or from one worker's push to its next (asynchronous)
    throughput: gradients used a second; dropped: the part of them that came too late
    staleness: updates between a worker's pull and its push, on average
    """

    times: tuple[float, ...]
    throughput: float
    dropped: float
    staleness: float

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    def quantile(self, q: float) -> float:
        return float(np.quantile(self.times, q))


def straggling(median: float, spread: float = 0.08, often: float = 0.02, slow: float = 2.0):
    """Times of a computation: log-normal around `median`; one in 1 / `often` takes up to `slow` times as long."""

    def sample(rng: np.random.Generator, worker: int) -> float:
        time = median * float(rng.lognormal(0.0, spread))
        return time * float(rng.uniform(1.0, slow)) if rng.random() < often else time

    return sample


def simulate_workers(
    workers: int, compute, *, needed: int | None = None, mode: str = "synchronous", transfer: float = 0.0, steps: int = 200,
    seed: int = 0,
) -> WorkersReport:  # fmt: skip
    """Steps of workers that share servers.

    compute: seconds, or a function of a random generator and the number of the worker (`straggling`)
    needed: gradients of a synchronous step; fewer than workers: the others are backups
    mode: "synchronous" or "asynchronous"
    transfer: seconds that all servers together take to pass one worker's parameters or gradients on

    >>> from tandem.distributed.simulator import simulate_workers
    >>> report = simulate_workers(4, 1.0, transfer=0.125, steps=3)
    >>> report.times  # 4 pulls, then the last one computes and pushes
    (1.625, 1.625, 1.625)
    """
    needed = workers if needed is None else needed
    if mode not in ("synchronous", "asynchronous"):
        raise ValueRangeError("simulate_workers", f"mode={mode!r} must be 'synchronous' or 'asynchronous'")
    if not 1 <= needed <= workers:
        raise ValueRangeError("simulate_workers", f"needed={needed} must lie between 1 and {workers} workers")
    sample = compute if callable(compute) else lambda rng, worker: compute
    return _Simulation(workers, sample, needed, mode == "synchronous", transfer, steps, seed).run()


class _Simulation:
    def __init__(self, workers, sample, needed, synchronous, transfer, steps, seed):
        self.workers, self.sample, self.needed = workers, sample, needed
        self.synchronous, self.transfer, self.steps = synchronous, transfer, steps
        self.rng = np.random.default_rng(seed)
        self.events: list = []  # (time, number, what, worker, step)
        self.number = 0
        self.servers_free = 0.0
        self.step = 0  # updates so far
        self.arrived = 0
        self.waiting: list[int] = []
        self.ends: list[float] = []
        self.last_push = [0.0] * workers
        self.dropped = self.pushes = 0
        self.stale: list[int] = []

    def run(self) -> WorkersReport:
        for worker in range(self.workers):
            self._pull(0.0, worker)
        wanted = self.steps if self.synchronous else self.steps * self.workers
        times: list[float] = []
        while self.step < wanted:
            time, _, what, worker, step = heapq.heappop(self.events)
            if what == "computes":  # parameters are there
                self._at(time + self.sample(self.rng, worker), "pushes", worker, step)
            elif what == "pushes":
                self._at(self._served(time), "arrives", worker, step)
            else:
                self._arrive(time, worker, step, times)
        used = self.step * (self.needed if self.synchronous else 1)
        dropped = self.dropped / self.pushes if self.pushes else 0.0
        return WorkersReport(tuple(times), used / time, dropped, statistics.mean(self.stale))

    def _at(self, time: float, what: str, worker: int, step: int):
        self.number += 1
        heapq.heappush(self.events, (time, self.number, what, worker, step))

    def _served(self, time: float) -> float:
        self.servers_free = max(self.servers_free, time) + self.transfer
        return self.servers_free

    def _pull(self, time: float, worker: int):
        self._at(self._served(time), "computes", worker, self.step)

    def _arrive(self, time: float, worker: int, step: int, times: list[float]):
        self.pushes += 1
        if not self.synchronous:
            self.stale.append(self.step - step)
            self.step += 1
            times.append(time - self.last_push[worker])
            self.last_push[worker] = time
            self._pull(time, worker)
            return
        if step < self.step:
            self.dropped += 1
            self._pull(time, worker)
            return
        self.stale.append(0)
        self.arrived += 1
        self.waiting.append(worker)
        if self.arrived == self.needed:
            times.append(time - (self.ends[-1] if self.ends else 0.0))
            self.ends.append(time)
            self.step, self.arrived = self.step + 1, 0
            waiting, self.waiting = self.waiting, []
            for w in waiting:
                self._pull(time, w)
