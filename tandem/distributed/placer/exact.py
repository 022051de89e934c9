"""Placement as an integer program, for small graphs: how good the search is.

Note [Exact placement]
Which device a group is on is a 0/1 variable; so is which of two units that could overlap goes first if they are on one device.
When a unit begins is a number, in parts of the time that the search has found, so that all lies between 0 and 1. A value takes its
time from one device to another if both ends are there. Links pass any number of values at once, memory counts what devices hold
between steps, and devices have their whole speed: all that makes the program easier than the truth, so that its bound holds for it.
"""

from __future__ import annotations

import dataclasses

from tandem.distributed.automatic.solve import Program
from tandem.distributed.placer.units import Problem


@dataclasses.dataclass(frozen=True)
class Exact:
    placement: list[int] | None
    seconds: float
    bound: float  # no placement takes less
    optimal: bool


def solve_exactly(problem: Problem, horizon: float, time_limit: float) -> Exact:
    """horizon: seconds that a placement is known to reach."""
    made = _Encoder(problem, horizon)
    made.encode()
    scale, result = made.program.solve(time_limit, 1e-6)
    bound = (result.mip_dual_bound or 0.0) * scale * horizon
    if result.x is None:  # within this time
        return Exact(None, horizon, float(bound), False)
    placement = [
        allowed[max(range(len(allowed)), key=lambda k, g=g: result.x[made.on[g][k]])]
        for g, allowed in enumerate(problem.allowed)
    ]
    return Exact(placement, float(result.x[made.total]) * horizon, float(bound), result.status == 0)


class _Encoder:
    def __init__(self, problem: Problem, horizon: float):
        self.problem, self.horizon = problem, horizon or 1.0
        self.program = Program()
        self.total = self.program.variable(1.0, whole=False)
        self.on = [[self.program.variable() for _ in allowed] for allowed in problem.allowed]
        self.start = [self.program.variable(whole=False) for _ in problem.units]

    def encode(self):
        problem, row = self.problem, self.program.row
        for variables in self.on:
            row(dict.fromkeys(variables, 1.0), 1, 1)
        for i in range(len(problem.units)):
            row(_sum({self.total: 1.0, self.start[i]: -1.0}, self._duration(i, -1.0)), 0, 2)
        for d in range(len(problem.devices)):  # a device computes all that is on it, one after another
            load: dict[int, float] = {self.total: 1.0}
            held: dict[int, float] = {}
            for i, unit in enumerate(problem.units):
                x = self._at(i, d)
                if x is not None:
                    load = _sum(load, {x: -unit.seconds[d] / self.horizon})
                    held = _sum(held, {x: unit.held / problem.costs.memory(d)})
            row(load, 0, 1)
            if held:
                row(held, 0, 1)
        for flow in problem.flows:
            for reader in flow.readers:
                self._edge(flow, reader)
        before = self._ancestors()
        for v, unit in enumerate(problem.units):
            for u in range(v):
                if u not in before[v] and max(problem.units[u].seconds) and max(unit.seconds):
                    self._apart(u, v)

    def _at(self, i: int, device: int) -> int | None:
        group = self.problem.units[i].group
        allowed = self.problem.allowed[group]
        return self.on[group][allowed.index(device)] if device in allowed else None

    def _duration(self, i: int, factor: float) -> dict[int, float]:
        unit = self.problem.units[i]
        allowed = self.problem.allowed[unit.group]
        return {x: factor * unit.seconds[d] / self.horizon for x, d in zip(self.on[unit.group], allowed, strict=True)}

    def _edge(self, flow, reader: int):
        """A reader begins after what it reads was made, and has come."""
        problem, i = self.problem, flow.producer
        apart = _sum({self.start[reader]: 1.0, self.start[i]: -1.0}, self._duration(i, -1.0))
        self.program.row(apart, 0, 1)
        if problem.units[i].group == problem.units[reader].group:
            return
        for a in problem.allowed[problem.units[i].group]:
            for b in problem.allowed[problem.units[reader].group]:
                if a != b:
                    time = problem.costs.transfer(flow.size, a, b) / self.horizon
                    terms = _sum(apart, {self._at(i, a): -time, self._at(reader, b): -time})
                    self.program.row(terms, -time, 2)

    def _apart(self, u: int, v: int):
        """Two units on one device do not overlap."""
        first = self.program.variable()
        for d in range(len(self.problem.devices)):
            a, b = self._at(u, d), self._at(v, d)
            if a is None or b is None:
                continue
            for x, y, sign, slack in ((u, v, -1.0, 0.0), (v, u, 1.0, 1.0)):
                seconds = self.problem.units[x].seconds[d] / self.horizon
                large = 1.0 + seconds
                # start[y] >= start[x] + seconds - large * (2 - on[x] - on[y]) - large * (this order is not taken)
                terms = _sum({self.start[y]: 1.0, self.start[x]: -1.0}, {a: -large})
                terms = _sum(_sum(terms, {b: -large}), {first: sign * large})
                self.program.row(terms, seconds - 2 * large - large * (1.0 - slack), 1.0 + large)

    def _ancestors(self) -> list[set[int]]:
        found: list[set[int]] = []
        for unit in self.problem.units:
            found.append(set().union(*(found[s] | {s} for s in unit.sources)) if unit.sources else set())
        return found


def _sum(a: dict[int, float], b: dict[int, float]) -> dict[int, float]:
    made = dict(a)
    for k, v in b.items():
        made[k] = made.get(k, 0.0) + v
    return made
