"""A plan of td.parallelize, simulated: what it takes where some ranks or links are slower than its cost model has them."""

from __future__ import annotations

import dataclasses
import functools

from tandem.distributed.automatic.choice import Choice, StageChoice
from tandem.distributed.automatic.plan import ParallelPlan
from tandem.distributed.pipeline.schedule import Action
from tandem.distributed.pipeline.timeline import Timeline, simulate
from tandem.errors import ValueRangeError


@dataclasses.dataclass(frozen=True)
class PlanReport:
    """What a step by a plan takes. time: seconds; bytes: what the busiest rank puts into collectives and sends to other stages;
    memory: of the fullest rank, by the memory planner; utilisation: the part of all ranks' time that operators take."""

    plan: ParallelPlan
    time: float
    timeline: Timeline
    utilisation: float

    @functools.cached_property
    def bytes(self) -> int:
        return self.plan.bytes + max(self.plan.sent(r) for s in self.plan.stages for r in s.place.ranks)

    @property
    def memory(self) -> float:
        return self.plan.memory

    def __str__(self):
        return (
            f"{self.time * 1e3:.3g} ms a step, {self.utilisation:.0%} of the time in operators, {self.timeline.idle:.0%} bubble, "
            f"{self.memory / 2**20:.1f} MB a rank, {self.bytes:,} B moved by the busiest"
        )


def simulate_plan(plan: ParallelPlan, *, slow: dict[int, float] | None = None, links: float = 1.0) -> PlanReport:
    """A step by the plan, of running ranks or of a Topology that is only described.

    slow: {rank: factor}: ranks that take that many times as long. Ranks of a stage wait for one another, so the stage does
    links: how many times as long messages between stages take

    >>> from tandem.distributed.simulator import simulate_plan
    >>> w = td.ones(64, 64, requires_grad=True)
    >>> plan = td.parallelize(lambda x: (x @ w).mean(), (td.ones(8, 64),), mesh=(2,))
    >>> simulate_plan(plan).time == plan.seconds
    True
    """
    choice, slow = plan.choice, slow or {}
    ranks = {r for s in choice.stages for r in s.place.ranks}
    for rank, factor in slow.items():
        if rank not in ranks or factor <= 0:
            raise ValueRangeError(
                "simulate_plan",
                f"slow={slow}: {rank} is no rank of the plan, which has {len(ranks)}, or {factor} no factor",
            )
    if links <= 0:
        raise ValueRangeError("simulate_plan", f"links={links} must be positive")
    factors = [max(slow.get(r, 1.0) for r in s.place.ranks) for s in choice.stages]

    def seconds(a: Action) -> float:
        return choice.seconds_of(a) * factors[a.stage]

    timeline = simulate(choice.schedule, seconds, lambda a, row: choice.message(a, row) * links)
    time = timeline.total + max(sum(choice.stages[s].times.once * factors[s] for s in row) for row in choice.rows)
    busy = sum(_computing(choice, s) * len(s.place.ranks) for s in choice.stages)
    return PlanReport(plan, time, timeline, busy / (time * len(ranks)))


def _computing(choice: Choice, s: StageChoice) -> float:
    """Seconds of a step that operators of a stage take, without what moves between ranks."""
    s.costs.know(s.step.graph)
    return choice.micro_batches * sum(s.costs.compute(node, way) for node, way in s.solution.strategies.items())
