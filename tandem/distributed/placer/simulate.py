"""A placement played through: devices run what is ready, the most urgent first; values cross links one after another.

A value crosses once to each device that reads it. A link between two devices, in one direction, passes one value at a time, unless
`shared` is off, as integer programs have it. Memory: what a device holds between steps, and values from when they are made or come
until the last reader there has run. Where more than one device computes, each has a part of its speed (`together`).
"""

from __future__ import annotations

import dataclasses
import heapq

from tandem.distributed.placer.units import Problem


@dataclasses.dataclass
class Outcome:
    """seconds: of a step; starts: of each unit; busy: seconds that each device computes; bytes, transfers: what crosses
    peaks: bytes that each device holds at most; sent: (source, destination) -> bytes"""

    seconds: float
    starts: list[float]
    busy: list[float]
    bytes: int
    transfers: int
    peaks: list[float]
    sent: dict[tuple[int, int], int]
    slower: float  # what units take, in times of what they take alone
    last: list[int | None]  # what each unit waited for: its latest source, or the one before it on its device

    @property
    def idle(self) -> list[float]:
        return [self.seconds - b for b in self.busy]

    def excess(self, problem: Problem) -> float:
        """Bytes that do not fit."""
        return sum(max(0.0, peak - problem.costs.memory(d)) for d, peak in enumerate(self.peaks))


def ranks(problem: Problem) -> list[float]:
    """Seconds from each unit to the end, with what crossing takes on average: the more, the more urgent."""
    found = [0.0] * len(problem.units)
    for i in reversed(range(len(problem.units))):
        after = 0.0
        for f in problem.made[i]:
            flow = problem.flows[f]
            cross = problem.costs.mean_transfer(flow.size)
            after = max([after, *(found[r] + cross for r in flow.readers)])
        seconds = problem.units[i].seconds
        found[i] = sum(seconds) / len(seconds) + after
    return found


def simulate(problem: Problem, placement: list[int], urgency: list[float], shared: bool = True) -> Outcome:
    """placement: a device for each group."""
    return _Play(problem, placement, urgency, shared).run()


class _Play:
    def __init__(self, problem: Problem, placement: list[int], urgency: list[float], shared: bool):
        self.problem, self.urgency, self.shared = problem, urgency, shared
        n = len(problem.devices)
        self.on = [placement[u.group] for u in problem.units]
        busy = {self.on[i] for i, u in enumerate(problem.units) if u.seconds[self.on[i]]}
        self.slower = 1.0 / problem.costs.together if len(busy) > 1 else 1.0
        self.waiting = [0] * len(problem.units)
        for flow in problem.flows:
            for r in flow.readers:
                self.waiting[r] += 1
        self.ready: list[list] = [[] for _ in range(n)]
        self.free = [True] * n
        self.events: list = []
        self.link_free: dict[tuple[int, int], float] = {}
        self.starts = [0.0] * len(problem.units)
        self.last: list[int | None] = [None] * len(problem.units)
        self.before: list[int | None] = [None] * n
        self.busy = [0.0] * n
        self.held = [0.0] * n
        for i, u in enumerate(problem.units):
            self.held[self.on[i]] += u.held
        self.peaks = list(self.held)
        self.reads = self._reads()
        self.sent: dict[tuple[int, int], int] = {}
        self.transfers = 0
        self.end = 0.0

    def _reads(self) -> list[dict[int, int]]:
        """For each flow, how many of its readers on each device have not run."""
        found = []
        for flow in self.problem.flows:
            on: dict[int, int] = {}
            for r in flow.readers:
                on[self.on[r]] = on.get(self.on[r], 0) + 1
            found.append(on)
        return found

    def run(self) -> Outcome:
        for i, n in enumerate(self.waiting):
            if not n:
                self._ready(i, None)
        self._start_all(0.0)
        while self.events:
            time, what, i, device = heapq.heappop(self.events)
            if what == 0:
                self._ended(time, i)
            else:
                self._arrived(time, i, device)
            while self.events and self.events[0][0] == time:
                _, what, i, device = heapq.heappop(self.events)
                if what == 0:
                    self._ended(time, i)
                else:
                    self._arrived(time, i, device)
            self._start_all(time)
        total = sum(self.sent.values())
        return Outcome(
            self.end, self.starts, self.busy, total, self.transfers, self.peaks, self.sent, self.slower, self.last
        )  # fmt: skip

    def _ready(self, i: int, source: int | None):
        self.last[i] = source
        heapq.heappush(self.ready[self.on[i]], (-self.urgency[i], i))

    def _start_all(self, time: float):
        for d, waiting in enumerate(self.ready):
            while waiting and self.free[d]:
                _, i = heapq.heappop(waiting)
                self._start(time, i, d)

    def _start(self, time: float, i: int, d: int):
        unit = self.problem.units[i]
        seconds = self.seconds(i)
        self.starts[i] = time
        previous = self.before[d]
        if previous is not None and time > 0 and self.starts[previous] + self.seconds(previous) == time:
            self.last[i] = previous
        self.before[d] = i
        self._hold(d, sum(self.problem.flows[f].size for f in self.problem.made[i]) if not unit.held else 0)
        if seconds == 0.0:
            self._ended(time, i)
            return
        self.busy[d] += seconds
        self.free[d] = False
        heapq.heappush(self.events, (time + seconds, 0, i, d))

    def seconds(self, i: int) -> float:
        return self.problem.units[i].seconds[self.on[i]] * self.slower

    def _hold(self, d: int, size: float):
        self.held[d] += size
        self.peaks[d] = max(self.peaks[d], self.held[d])

    def _ended(self, time: float, i: int):
        d = self.on[i]
        self.free[d] = True
        self.end = max(self.end, time)
        for f in self.problem.made[i]:
            flow = self.problem.flows[f]
            for other in self.reads[f]:
                if other == d:
                    self._deliver(f, d, i)
                else:
                    self._send(time, f, d, other)
        for f in self._needed(i):
            self.reads[f][d] -= 1
            flow = self.problem.flows[f]
            if not self.reads[f][d]:
                local = self.on[flow.producer] == d
                if not (flow.kept and local) and not (local and self.problem.units[flow.producer].held):
                    self.held[d] -= flow.size

    def _needed(self, i: int) -> list[int]:
        return [
            f for s in self.problem.units[i].sources for f in self.problem.made[s] if i in self.problem.flows[f].readers
        ]

    def _send(self, time: float, f: int, source: int, destination: int):
        flow = self.problem.flows[f]
        key = (source, destination)
        begin = max(time, self.link_free.get(key, 0.0)) if self.shared else time
        arrival = begin + self.problem.costs.transfer(flow.size, source, destination)
        self.link_free[key] = arrival
        self.sent[key] = self.sent.get(key, 0) + flow.size
        self.transfers += flow.value is not None
        heapq.heappush(self.events, (arrival, 1, f, destination))

    def _arrived(self, time: float, f: int, d: int):
        self.end = max(self.end, time)
        self._hold(d, self.problem.flows[f].size)
        self._deliver(f, d, self.problem.flows[f].producer)

    def _deliver(self, f: int, d: int, source: int):
        for r in self.problem.flows[f].readers:
            if self.on[r] == d:
                self.waiting[r] -= 1
                if not self.waiting[r]:
                    self._ready(r, source)
