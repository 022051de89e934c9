"""A choice of how a training step is divided: stages, the ranks of each, and how each is divided among them; and what it takes."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

from tandem.distributed.automatic.costs import Costs
from tandem.distributed.automatic.solve import Solution, memory_of_solution
from tandem.distributed.automatic.step import FREE, WHOLE, Step
from tandem.distributed.pipeline.cut import Joint
from tandem.distributed.pipeline.places import Place, blocks
from tandem.distributed.pipeline.programs import levels
from tandem.distributed.pipeline.schedule import Action, Schedule, schedule_of
from tandem.distributed.pipeline.timeline import Timeline, simulate
from tandem.distributed.pipeline.verify import most_kept_of_stages
from tandem.distributed.sharding.layout import REPLICATE
from tandem.distributed.traced import Traced
from tandem.graph.ir import Node


class Times(NamedTuple):
    """Seconds of one micro-batch: forward, gradients of what came in, gradients of weights; and what is done once a step."""

    forward: float
    inputs: float
    weights: float
    once: float

    @property
    def micro(self) -> float:
        return self.forward + self.inputs + self.weights


def times_of(step: Step, costs: Costs, solution: Solution, recompute: bool = False) -> Times:
    """What the parts of a divided step take, by the same costs as the solver's."""
    costs.know(step.graph)
    leaving = sum(w == FREE for w in step.wants[step.forward :])
    level = levels(step.graph, step.forward, leaving)
    seconds, once = [0.0, 0.0, 0.0], 0.0
    again = 0.0
    lies, moved = dict(solution.placements), set()

    def move(v, new) -> float:
        if lies[v] == new or (v, new) in moved:
            return 0.0
        moved.add((v, new))
        return costs.move(v.type, lies[v], new)

    for node, s in solution.strategies.items():
        at = level[node]
        for v, new in zip(node.inputs, s.inputs, strict=True):
            seconds[at] += move(v, new)
        compute = costs.compute(node, s)
        seconds[at] += compute
        again += compute if at == 0 else 0.0
        lies.update(zip(node.outputs, s.outputs, strict=True))
    for i, (v, want) in enumerate(zip(step.graph.outputs, step.wants, strict=True)):
        at = level[v.node]
        if want in (WHOLE, FREE):
            new = solution.leaving[i] if want == FREE else (REPLICATE,) * len(lies[v])
            seconds[at] += move(v, new)
        else:
            cost = costs.move(v.type, lies[v], solution.placements[step.graph.inputs[want]])
            once += cost if step.micro_batches > 1 else 0.0
            seconds[2] += cost if step.micro_batches == 1 else costs.add(v.type, lies[v])
    once += sum(
        costs.update(step.graph.inputs[i].type, solution.placements[step.graph.inputs[i]]) for i in step.weights
    )
    return Times(seconds[0], seconds[1] + (again if recompute else 0.0), seconds[2], once)


@dataclasses.dataclass
class StageChoice:
    """joint: None where the whole step is one program."""

    step: Step
    place: Place
    solution: Solution
    costs: Costs
    joint: Joint | None = None
    recompute: bool = False

    @functools.cached_property
    def times(self) -> Times:
        return times_of(self.step, self.costs, self.solution, self.recompute)

    def memory(self, kept: int) -> float:
        """By the solver's count."""
        return memory_of_solution(self.step, self.costs, self.solution, kept, self.recompute)


@dataclasses.dataclass
class Choice:
    """traced: of a micro-batch; stage_of: which stage computes which node of it. Stages are in rows: each row's are at one place;
    rows have one stage each, but for interleaved ones, where row r has stages r, r + rows, and so on."""

    traced: Traced
    stages: list[StageChoice]
    micro_batches: int = 1
    stage_of: dict[Node, int] = dataclasses.field(default_factory=dict)
    schedule_name: str = "1f1b"

    @functools.cached_property
    def rows(self) -> list[list[int]]:
        """Which stages are at each place."""
        count = len({s.place for s in self.stages})
        return [list(range(r, len(self.stages), count)) for r in range(count)]

    @functools.cached_property
    def schedule(self) -> Schedule:
        return schedule_of(self.schedule_name, len(self.rows), len(self.stages), self.micro_batches)

    @functools.cached_property
    def timeline(self) -> Timeline:
        return simulate(self.schedule, self.seconds_of, self.message)

    def seconds_of(self, a: Action) -> float:
        s = self.stages[a.stage]
        t, besides = s.times, s.costs.topology.device.action if len(self.stages) > 1 else 0.0
        return besides + {"F": t.forward, "I": t.inputs, "W": t.weights, "B": t.inputs + t.weights}[a.kind]

    def message(self, action: Action, row: int) -> float:
        """Seconds until what an action gives is at another stage: the busiest rank's part."""
        s = self.stages[action.stage]
        to = action.stage + (1 if action.kind == "F" else -1)
        sent = self.sent_between(action.kind == "F", action.stage, to)
        most = max(sent.values(), default=0)
        link = s.costs.topology.link([s.place.ranks[0], self.stages[to].place.ranks[0]])
        return link.time(most) if most else 0.0

    def sent_between(self, forward: bool, source: int, target: int) -> dict[int, int]:
        """Bytes that each rank of a stage sends to another stage for one micro-batch."""
        a, b = self.stages[source], self.stages[target]
        found: dict[int, int] = {}
        if a.joint is None or b.joint is None:
            return found
        values = a.joint.outputs if forward else a.joint.gradients_out
        first = 0 if forward else len(a.joint.outputs)
        wanted = b.joint.inputs if forward else b.joint.gradients_in
        offset = 0 if forward else len(b.joint.inputs)
        for i, v in enumerate(values):
            if v in wanted and first + i in a.solution.leaving:
                new = b.solution.placements[b.step.graph.inputs[offset + wanted.index(v)]]
                for block in blocks(tuple(v.shape), a.place, a.solution.leaving[first + i], b.place, new):
                    if block.source == block.target:
                        continue
                    found[block.source] = found.get(block.source, 0) + block.elements * v.dtype.itemsize
        return found

    @property
    def seconds(self) -> float:
        """Of a step."""
        return self.timeline.total + max(sum(self.stages[s].times.once for s in row) for row in self.rows)

    @property
    def idle(self) -> float:
        """The part of the ranks' time that they wait for one another's stages."""
        return self.timeline.idle

    def kept(self, stage: int) -> int:
        """Of how many micro-batches a stage keeps activations."""
        return most_kept_of_stages(self.schedule)[stage]

    @property
    def memory(self) -> float:
        """Bytes of the fullest rank, by the solver's count."""
        return max(sum(self.stages[s].memory(self.kept(s)) for s in row) for row in self.rows)

    @property
    def bound(self) -> float:
        return self.stages[0].solution.bound if len(self.stages) == 1 and self.micro_batches == 1 else 0.0

    @property
    def optimal(self) -> bool:
        return all(s.solution.optimal for s in self.stages)
