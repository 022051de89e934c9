"""Workers and parameter servers, simulated: asynchronous, synchronous, and synchronous with backup workers.

A worker pulls the parameters, computes, pushes gradients, and begins again. A synchronous step ends when the first `needed`
gradients of that step have arrived; gradients of a step that is over are dropped, and their worker goes on with the present step.

Note [Load of servers]
Servers pass a certain number of bytes a second on. Either in turns, each worker's in the order in which they ask; then a worker
more is served after those that are needed, and costs them nothing. Or, as connections of a network do, all that are under way share
what there is, in each direction; then every worker more makes the gradients that are needed arrive later, whether its own is used
or not. That is what makes one backup worker too many cost time.
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
    seed: int = 0, sharing: str = "turns", alone: float = 0.0,
) -> WorkersReport:  # fmt: skip
    """Steps of workers that share servers.

    compute: seconds, or a function of a random generator and the number of the worker (`straggling`)
    needed: gradients of a synchronous step; fewer than workers: the others are backups
    mode: "synchronous" or "asynchronous"
    transfer: seconds that all servers together take to pass one worker's parameters or gradients on
    sharing: "turns" or "fair", see Note [Load of servers]; alone: with "fair", seconds that a worker's own link takes at least

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
    if sharing not in ("turns", "fair"):
        raise ValueRangeError("simulate_workers", f"sharing={sharing!r} must be 'turns' or 'fair'")
    sample = compute if callable(compute) else lambda rng, worker: compute
    links = [_Shared(transfer, alone) for _ in range(2)] if sharing == "fair" else [_InTurns(transfer)] * 2
    return _Simulation(workers, sample, needed, mode == "synchronous", links, steps, seed).run()


class _InTurns:
    """Servers that serve one after the other."""

    def __init__(self, seconds: float):
        self.seconds, self.free = seconds, 0.0

    def begin(self, time: float, what: tuple):
        self.free = max(self.free, time) + self.seconds
        return self.free, what

    next_end = float("inf")  # ends are known when transfers begin


class _Shared:
    """A direction of links that all transfers under way share. Each has had the same share since it began, so what each has still
    to get is told by one clock, which runs the slower the more there are."""

    def __init__(self, seconds: float, alone: float):
        self.seconds, self.alone = seconds, alone
        self.clock = self.time = 0.0
        self.under_way: list = []  # (clock at its end, number, what)
        self.number = 0

    def _rate(self) -> float:
        taken = max(len(self.under_way) * self.seconds, self.alone)
        return 1 / taken if taken else float("inf")

    def _go_on(self, time: float):
        if self.under_way:
            self.clock += (time - self.time) * self._rate()
        self.time = time

    def begin(self, time: float, what: tuple):
        if not self.seconds and not self.alone:
            return time, what
        self._go_on(time)
        self.number += 1
        heapq.heappush(self.under_way, (self.clock + 1.0, self.number, what))
        return None

    @property
    def next_end(self) -> float:
        if not self.under_way:
            return float("inf")
        return self.time + max(0.0, self.under_way[0][0] - self.clock) / self._rate()

    def end(self) -> tuple:
        time = self.next_end
        self._go_on(time)
        self.clock = self.under_way[0][0]
        return time, heapq.heappop(self.under_way)[2]


class _Simulation:
    def __init__(self, workers, sample, needed, synchronous, links, steps, seed):
        self.workers, self.sample, self.needed = workers, sample, needed
        self.synchronous, self.steps = synchronous, steps
        self.pulls, self.incoming = links
        self.rng = np.random.default_rng(seed)
        self.events: list = []  # (time, number, what, worker, step)
        self.number = 0
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
            time, what, worker, step = self._next()
            if what == "computes":  # parameters are there
                self._at(time + self.sample(self.rng, worker), "pushes", worker, step)
            elif what == "pushes":
                self._transfer(self.incoming, time, "arrives", worker, step)
            else:
                self._arrive(time, worker, step, times)
        used = self.step * (self.needed if self.synchronous else 1)
        dropped = self.dropped / self.pushes if self.pushes else 0.0
        return WorkersReport(tuple(times), used / time, dropped, statistics.mean(self.stale))

    def _at(self, time: float, what: str, worker: int, step: int):
        self.number += 1
        heapq.heappush(self.events, (time, self.number, what, worker, step))

    def _next(self) -> tuple:
        link = min(self.pulls, self.incoming, key=lambda link: link.next_end)
        if self.events and self.events[0][0] <= link.next_end:
            time, _, *event = heapq.heappop(self.events)
        else:
            time, event = link.end()
        return time, *event

    def _transfer(self, link, time: float, *event):
        begun = link.begin(time, event)
        if begun is not None:
            self._at(begun[0], *event)

    def _pull(self, time: float, worker: int):
        self._transfer(self.pulls, time, "computes", worker, self.step)

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
