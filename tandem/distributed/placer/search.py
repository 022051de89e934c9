"""A good placement: list scheduling, then local search.

Note [Search]
Units are taken from the most urgent on, and each group goes where its first unit ends earliest (HEFT: Topcuoglu, Hariri, Wu, 2002).
That, everything on one device, and cuts of the order of units into as many runs as there are devices, are where the search begins;
the best is improved by moving one group to another device, groups of the critical path first, and a run of neighbours at a time, as
long as that helps, then from placements that were disturbed at random. One device is among the beginnings, so the result is never
slower than it in the prediction, if the model fits there.
"""

from __future__ import annotations

import itertools
import random
import time

from tandem.distributed.placer.simulate import Outcome, ranks, simulate
from tandem.distributed.placer.units import Problem


class Search:
    """best: a device for each group; outcome: what is expected of it"""

    def __init__(self, problem: Problem, shared: bool = True, seed: int = 0):
        self.problem, self.shared = problem, shared
        self.urgency = ranks(problem)
        self.members = problem.members
        self.random = random.Random(seed)
        self.tried: dict[tuple, tuple[tuple, Outcome]] = {}
        self.evaluations = 0

    def value(self, placement: list[int]) -> tuple[tuple, Outcome]:
        """What is minimised (bytes that do not fit, seconds, bytes), and the outcome."""
        key = tuple(placement)
        found = self.tried.get(key)
        if found is None:
            outcome = simulate(self.problem, placement, self.urgency, self.shared)
            self.evaluations += 1
            found = self.tried[key] = ((outcome.excess(self.problem), outcome.seconds, outcome.bytes), outcome)
        return found

    def run(self, seconds: float) -> tuple[list[int], Outcome]:
        end = time.monotonic() + seconds
        starts = [self.list_schedule(), *self.one_device().values(), *self.runs()]
        best = min(starts, key=lambda p: self.value(p)[0])
        for start in sorted(starts, key=lambda p: self.value(p)[0])[:3]:
            best = min(best, self.improve(start, end), key=lambda p: self.value(p)[0])
        movable = [g for g, a in enumerate(self.problem.allowed) if len(a) > 1]
        stale = 0
        while movable and time.monotonic() < end and stale < 20:
            disturbed = list(best)
            for g in self.random.sample(movable, max(1, min(len(movable) // 6, 12))):
                disturbed[g] = self.random.choice(self.problem.allowed[g])
            found = self.improve(disturbed, end)
            stale += 1
            if self.value(found)[0] < self.value(best)[0]:
                best, stale = found, 0
        return best, self.value(best)[1]

    # -- where to begin

    def one_device(self) -> dict[int, list[int]]:
        """Everything on one device, but for what is held elsewhere."""
        return {
            d: [d if d in allowed else allowed[0] for allowed in self.problem.allowed]
            for d in range(len(self.problem.devices))
        }

    def runs(self) -> list[list[int]]:
        """The order of units cut into runs of equal work, one a device: pipelines and halves."""
        n = len(self.problem.devices)
        total = sum(u.seconds[0] for u in self.problem.units) or 1.0
        placement, done = [0] * len(self.problem.allowed), 0.0
        seen = set()
        for u in self.problem.units:
            if u.group not in seen and u.nodes and not u.held:
                seen.add(u.group)
                wanted = min(n - 1, int(done / total * n))
                allowed = self.problem.allowed[u.group]
                placement[u.group] = wanted if wanted in allowed else allowed[0]
            done += u.seconds[0]
        for g, allowed in enumerate(self.problem.allowed):
            if g not in seen:
                placement[g] = self._with_readers(g, placement, allowed)
        return [placement]

    def _with_readers(self, g: int, placement: list[int], allowed: list[int]) -> int:
        """The device of what reads a group first."""
        for i in self.members[g]:
            for f in self.problem.made[i]:
                for r in self.problem.flows[f].readers:
                    if placement[self.problem.units[r].group] in allowed:
                        return placement[self.problem.units[r].group]
        return allowed[0]

    def list_schedule(self) -> list[int]:
        problem = self.problem
        device: dict[int, int] = {}
        free = [0.0] * len(problem.devices)
        memory = [0.0] * len(problem.devices)
        end: dict[int, float] = {}
        sources: dict[int, list[int]] = {}
        for f, flow in enumerate(problem.flows):
            for r in flow.readers:
                sources.setdefault(r, []).append(f)
        # Inputs hold no device up: each goes with the first unit that reads it.
        order = sorted(range(len(problem.units)), key=lambda i: -self.urgency[i])
        for i in self._after_sources(order):
            unit = problem.units[i]
            if unit.held and unit.group not in device and len(problem.allowed[unit.group]) > 1:
                end[i] = 0.0
                continue
            choices = [device[unit.group]] if unit.group in device else problem.allowed[unit.group]

            def finish(d, i=i, unit=unit):
                ready = free[d] if unit.seconds[d] else 0.0
                need = 0.0
                for f in sources.get(i, ()):
                    flow = problem.flows[f]
                    at = device.get(problem.units[flow.producer].group)
                    if at is None:
                        need += problem.units[flow.producer].held
                        continue
                    ready = max(ready, end[flow.producer] + problem.costs.transfer(flow.size, at, d))
                full = memory[d] + need > problem.costs.memory(d)
                return full, ready + unit.seconds[d]

            best = min(choices, key=finish)
            end[i] = finish(best)[1]
            if unit.seconds[best]:
                free[best] = end[i]
            device[unit.group] = best
            memory[best] += unit.held
            for f in sources.get(i, ()):
                producer = problem.units[problem.flows[f].producer]
                if producer.group not in device and best in problem.allowed[producer.group]:
                    device[producer.group] = best
                    memory[best] += producer.held
        return [device.get(g, allowed[0]) for g, allowed in enumerate(problem.allowed)]

    def _after_sources(self, order: list[int]) -> list[int]:
        """The same order, but for units of no time, which may be as urgent as what they need."""
        made, done = [], set()
        for first in order:
            stack = [first]
            while stack:
                i = stack[-1]
                missing = [s for s in self.problem.units[i].sources if s not in done]
                if i in done or not missing:
                    stack.pop()
                    if i not in done:
                        done.add(i)
                        made.append(i)
                else:
                    stack.extend(missing)
        return made

    # -- improvement

    def improve(self, placement: list[int], end: float) -> list[int]:
        best = list(placement)
        improved = True
        while improved and time.monotonic() < end:
            improved = False
            value, outcome = self.value(best)
            for move in self._moves(best, outcome):
                if time.monotonic() > end:
                    break
                trial = list(best)
                for g, d in move:
                    trial[g] = d
                if self.value(trial)[0] < value:
                    best, improved = trial, True
                    break
        return best

    def _moves(self, placement: list[int], outcome: Outcome):
        """Changes to try, the most promising first."""
        problem = self.problem
        path = self._critical(outcome)
        order = list(dict.fromkeys([*(problem.units[i].group for i in path), *range(len(problem.allowed))]))
        for g in order:
            for d in problem.allowed[g]:
                if d != placement[g]:
                    yield [(g, d)]
        for a, b in itertools.pairwise(path):  # neighbours together: alone, each would only add a crossing
            first, second = problem.units[a].group, problem.units[b].group
            if first != second:
                for d in set(problem.allowed[first]) & set(problem.allowed[second]):
                    if d != placement[first] or d != placement[second]:
                        yield [(first, d), (second, d)]
        for g in order[: len(path)]:  # two that change places
            for other in range(len(problem.allowed)):
                d, e = placement[g], placement[other]
                if d != e and e in problem.allowed[g] and d in problem.allowed[other]:
                    yield [(g, e), (other, d)]
        for i, unit in enumerate(problem.units):  # a unit with all that it alone needs
            alone = [s for s in unit.sources if all(set(problem.flows[f].readers) <= {i} for f in problem.made[s])]
            groups = {unit.group, *(problem.units[s].group for s in alone)}
            if len(groups) > 1:
                for d in problem.allowed[unit.group]:
                    move = [(g, d) for g in groups if d in problem.allowed[g] and placement[g] != d]
                    if len(move) > 1:
                        yield move

    def _critical(self, outcome: Outcome) -> list[int]:
        """The units that the end waited for, from the last back."""
        problem = self.problem
        if not problem.units:
            return []
        ends = [s + min(u.seconds) for s, u in zip(outcome.starts, problem.units, strict=True)]
        i: int | None = max(range(len(ends)), key=lambda k: ends[k])
        path: list[int] = []
        while i is not None and len(path) <= len(problem.units):
            path.append(i)
            i = outcome.last[i]
        return path
