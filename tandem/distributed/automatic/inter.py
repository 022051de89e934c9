"""Stages and the ranks of each: dynamic programming over cuts of the model and submeshes, around the integer program of one stage.

Note [Stages and submeshes]
The model is a row of layers, cut where little has to be sent (pipeline/assign.py) or where the user marked it. A stage is an
interval of layers on a submesh: ranks inside one node, or whole nodes. What an interval takes on a submesh is what the integer
program finds for it; intervals that compute the same, as equal layers do, are solved once. A pipeline of m micro-batches takes the
sum of its stages and m - 1 times the slowest one. For a bound on the slowest, dynamic programming from the last layer on finds the
least sum; all bounds are tried. A stage with k stages from it to the end keeps activations of k micro-batches; where these are too
many for the memory, it computes them again, or is divided otherwise.

Most intervals are never solved. On one rank an interval takes what its layers take. On several it takes no less than their share of
that, and what is left to the other ranks no less than theirs: where a plan that is known takes less, nobody asks how to divide it.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

from tandem.distributed.automatic.choice import Choice, StageChoice
from tandem.distributed.automatic.costs import Costs
from tandem.distributed.automatic.solve import Solution, replicated_solution, solve
from tandem.distributed.automatic.step import Step, stage_step
from tandem.distributed.automatic.strategies import Strategy
from tandem.distributed.pipeline.assign import ANYWHERE
from tandem.distributed.pipeline.cut import Joint, cut, joint_of, stage_nodes
from tandem.distributed.pipeline.places import Place
from tandem.distributed.sharding.layout import Grid
from tandem.distributed.topology import Topology
from tandem.distributed.traced import Traced
from tandem.errors import ValueRangeError
from tandem.graph.ir import Node, Value
from tandem.graph.work import work_of

LEAST, MOST = 0.4, 2.0  # a stage's share of the work, of its share of the ranks: others are not looked at
EVEN = 1.5  # the same where several stages at each place shall be short
BOUNDS = 24  # on the slowest stage that are tried
MEMORIES = 4  # solutions of an interval with less and less memory
SHARE = 0.8  # of an even division of the work: parts that fit in caches may take less than their share


class Found(NamedTuple):
    """A stage of some layers on some ranks. shape: of its mesh; solution, step: as solved, for its content, and None on one rank,
    where there is nothing to solve."""

    shape: tuple[int, ...]
    recompute: bool
    solution: Solution | None
    step: Step | None
    micro: float
    once: float
    fixed: float  # bytes that weights take
    each: float  # bytes of a micro-batch that is kept


class Intervals:
    """Stages of a model for micro-batches of one size, solved as they are asked for.

    known: seconds of a step by the best plan so far; must: whether some plan must be found, when the time is over, too
    """

    def __init__(self, traced: Traced, layer_of: dict[Node, int], layers: int, micro_batches: int, topology: Topology, *,
                 state: float, times, until: float, gap: float, memory_limit: float | None, solved: dict,
                 recompute: bool | None = None, known: float = math.inf, must: bool = False,
                 memos: dict | None = None):  # fmt: skip
        self.traced, self.layer_of, self.layers, self.micro_batches = traced, layer_of, layers, micro_batches
        self.topology, self.state, self.times, self.until, self.gap = topology, state, times, until, gap
        self.memory_limit, self.solved, self.known, self.must = memory_limit, solved, known, must
        self.memos = {} if memos is None else memos
        self.recompute = (False, True) if recompute is None else (recompute,)
        self.work = [0.0] * layers
        for node, layer in layer_of.items():
            if layer != ANYWHERE:
                self.work[layer] += work_of(node)
        self._found: dict = {}
        self._layers: dict[int, list[Found]] = {}
        self._steps: dict[tuple[int, int], Step] = {}

    def share(self, i: int, j: int) -> float:
        return sum(self.work[i:j]) / (sum(self.work) or 1.0)

    def options(self, i: int, j: int, ranks: int, first: int, stages: int = 1) -> list[Found]:
        """Ways to have layers i to j on so many ranks from `first` on. On several, none where the time is over.

        stages: how many equal ones are asked for at each place
        """
        per_node = self.topology.per_node
        inside = first // per_node == (first + ranks - 1) // per_node
        key = (i, j, ranks, inside)
        if key not in self._found:
            if ranks == 1:
                self._found[key] = self._on_one_rank(i, j)
            elif self._is_worth_solving(i, j, ranks, stages):
                self._found[key] = self._solve(i, j, ranks, first)
            else:
                return []
        return self._found[key]

    def _on_one_rank(self, i: int, j: int) -> list[Found]:
        """What the layers take, added up; a stage that computes again keeps what comes into its first layer."""
        for layer in range(i, j):
            if layer not in self._layers:
                self._layers[layer] = self._solve(layer, layer + 1, 1, 0)
        made = []
        for parts in zip(*(self._layers[layer] for layer in range(i, j)), strict=True):
            total = lambda name, parts=parts: sum(getattr(f, name) for f in parts)
            each = parts[0].each if parts[0].recompute else total("each")
            made.append(
                Found((1,), parts[0].recompute, None, None, total("micro"), total("once"), total("fixed"), each)
            )
        return made

    def _is_worth_solving(self, i: int, j: int, ranks: int, stages: int) -> bool:
        """Whether a stage of about as much work as it should have could be part of a better plan than the known one."""
        wanted = ranks / self.topology.devices / stages
        most = MOST if stages == 1 else EVEN
        in_time = self.must or time.monotonic() < self.until
        if not in_time or not LEAST * wanted <= self.share(i, j) <= most * wanted:
            return False
        total, own = self._alone(0, self.layers), self._alone(i, j)
        others, m = self.topology.devices - ranks, self.micro_batches
        if stages > 1 or not others:
            return SHARE * m * total / self.topology.devices < self.known
        mine, rest = own / ranks, (total - own) / others  # each stage of a micro-batch, were the work divided evenly
        return SHARE * ((m - 1) * max(mine, rest) + mine + rest) < self.known

    def _alone(self, i: int, j: int) -> float:
        return min((f.micro for f in self._on_one_rank(i, j)), default=0.0)

    def _solve(self, i: int, j: int, ranks: int, first: int) -> list[Found]:
        if (i, j) not in self._steps:
            self._steps[i, j] = stage_step(self._joint(i, j), self.traced.graph, self.micro_batches)
        step = self._steps[i, j]
        found = []
        for shape in shapes_of(ranks, first, self.topology):
            costs = self.costs(shape, first)
            for solution in self._solutions(step, costs):
                for recompute in self.recompute:
                    stage = StageChoice(step, Place(tuple(range(ranks)), shape), solution, costs, None, recompute)
                    none, one = stage.memory(0), stage.memory(1)
                    found.append(
                        Found(shape, recompute, solution, step, stage.times.micro, stage.times.once, none, one - none)
                    )
        return found

    def costs(self, shape: tuple[int, ...], first: int) -> Costs:
        grid = Grid(shape, (0,) * len(shape), tuple(range(len(shape))))
        return Costs(grid, self.topology, first, self.state, self.times, self.memos)

    def _solutions(self, step: Step, costs: Costs) -> list[Solution]:
        """The quickest division of a stage; with a memory limit, also those that need less."""
        if math.prod(costs.grid.shape) == 1:
            return [replicated_solution(step, costs)]
        made = [s for s in [self.solution(step, costs, None)] if s is not None]
        if not made and self.must:
            return [replicated_solution(step, costs)]
        if self.memory_limit is not None and made:
            for share in (0.7, 0.4)[: MEMORIES - 2]:
                less = self.solution(step, costs, self.memory_limit * share)
                made += [less] if less is not None else []
        return made

    def solution(self, step: Step, costs: Costs, limit: float | None, kept: int = 1, recompute: bool = False):
        """What the solver finds for a stage, or found for an equal one. None if it finds nothing."""
        key = step.content(), costs.grid.shape, tuple(costs.links), costs.next_link, limit, kept, recompute
        if key not in self.solved:
            left = self.until - time.monotonic()
            if left <= 0:
                return None
            try:
                self.solved[key] = _listed(step, solve(step, costs, limit, left, self.gap, None, kept, recompute))
            except ValueRangeError:
                self.solved[key] = None
        kept_one = self.solved[key]
        return None if kept_one is None else _applied(step, kept_one)

    def _joint(self, i: int, j: int) -> Joint:
        graph = self.traced.graph
        inside = {n: 1 if i <= s < j else ANYWHERE if s == ANYWHERE else 2 for n, s in self.layer_of.items()}
        producer = {v: s for n, s in inside.items() if s != ANYWHERE for v in n.outputs}
        for v in graph.outputs:
            producer.setdefault(v, 1 if j == self.layers else 2)
        nodes = stage_nodes(graph, inside, 1, 2, producer)
        own = {v for n in nodes for v in n.outputs if producer.get(v) == 1}
        later = dict.fromkeys(v for n, s in self.layer_of.items() if s >= j for v in n.inputs if v in own)
        outputs = [*later, *(v for v in graph.outputs if producer[v] == 1 and v not in later)]
        flows = [v for v in outputs if (v in later and v.dtype.is_inexact) or v is graph.outputs[0]]
        return joint_of(graph, nodes, outputs, flows, self.traced.weights)


def _listed(step: Step, solution: Solution) -> tuple:
    """A solution by the order of nodes, for steps of the same content."""
    nodes = [solution.strategies[n] for n in step.graph.nodes if n in solution.strategies]
    inputs = [solution.placements[v] for v in step.graph.inputs]
    return nodes, inputs, solution.leaving, solution.seconds, solution.bound, solution.optimal


def _applied(step: Step, listed: tuple) -> Solution:
    strategies, inputs, *rest = listed
    nodes = [n for n in step.graph.nodes if not n.op.is_input]
    of_nodes: dict[Node, Strategy] = dict(zip(nodes, strategies, strict=True))
    of_inputs: dict[Value, tuple] = dict(zip(step.graph.inputs, inputs, strict=True))
    return Solution(of_nodes, of_inputs, *rest)


def shapes_of(ranks: int, first: int, topology: Topology) -> list[tuple[int, ...]]:
    """Meshes of so many ranks: in a row; and in two rows, of which those of a node are one if there are several nodes."""
    per_node = topology.per_node
    if ranks > per_node:
        return [(ranks,), (ranks // per_node, per_node)] if per_node > 1 else [(ranks,)]
    found: list[tuple[int, ...]] = [(ranks,)]
    if ranks >= 4:
        rows = 2 ** (int(math.log2(ranks)) // 2)
        if ranks % rows == 0:
            found.append((rows, ranks // rows))
    return found


def sizes_of(topology: Topology) -> list[int]:
    """How many ranks a submesh may have: a power of two inside a node, or whole nodes."""
    inside = [2**k for k in range(int(math.log2(topology.per_node)) + 1)]
    inside += [topology.per_node] if topology.per_node not in inside else []
    return inside + [n * topology.per_node for n in range(2, topology.nodes + 1)]


class Row(NamedTuple):
    """Stages to the end of the model: seconds of all, and what each is."""

    seconds: float
    stages: tuple  # (first layer, end, first rank, Found)

    def least(self, micro_batches: int) -> float:
        """Seconds that the busiest ranks compute in a step: no schedule takes less."""
        busy: dict[int, float] = {}
        for *_, first, f in self.stages:
            busy[first] = busy.get(first, 0.0) + micro_batches * f.micro + f.once
        return max(busy.values())


def best_rows(found: Intervals, most_stages: int, least_stages: int = 1, sizes: list[int] | None = None) -> list[Row]:
    """For each number of stages the best one found, all ranks being used."""
    topology, limit = found.topology, found.memory_limit
    sizes = sizes or sizes_of(topology)
    options: dict[tuple[int, int, int, int], list[Found]] = {}
    total = topology.devices

    def ways(i: int, j: int, n: int, first: int) -> list[Found]:
        if (i, j, n, first) not in options:
            fits = first % n == 0 if n <= topology.per_node else first % topology.per_node == 0
            options[i, j, n, first] = found.options(i, j, n, first) if fits and first + n <= total else []
        return options[i, j, n, first]

    for i in range(found.layers):  # solves what may be a stage
        for j in range(i + 1, found.layers + 1):
            for n in sizes:
                if n < total:
                    ways(i, j, n, 0)
    slowest = sorted({f.micro for some in options.values() for f in some})
    bounds = slowest[:: max(1, len(slowest) // BOUNDS)] + slowest[-1:]
    best: dict[int, tuple[float, Row]] = {}
    m = found.micro_batches
    for bound in bounds:
        rows = _least_sums(found, sizes, ways, bound, most_stages, limit)
        for count, row in rows.items():
            if count < least_stages:
                continue
            worst = max(f.micro for *_, f in row.stages)
            seconds = row.seconds + (m - 1) * worst + max(f.once for *_, f in row.stages)
            if count not in best or seconds < best[count][0]:
                best[count] = seconds, row
    return [row for _, row in best.values()]


def _least_sums(found: Intervals, sizes, ways, bound: float, most_stages: int, limit: float | None) -> dict[int, Row]:
    total, layers, m = found.topology.devices, found.layers, found.micro_batches
    # rows[i, ranks left]: the best from layer i on, with the last so many ranks
    rows: dict[tuple[int, int], Row] = {(layers, 0): Row(0.0, ())}
    best: dict[int, Row] = {}
    for count in range(1, most_stages + 1):
        longer: dict[tuple[int, int], Row] = {}
        for (j, used), row in rows.items():
            for i in range(j):
                for n in sizes:
                    first = total - used - n
                    if first < 0 or (i == 0) != (first == 0):
                        continue
                    for f in ways(i, j, n, first):
                        if f.micro > bound or (limit is not None and f.fixed + min(m, count) * f.each > limit):
                            continue
                        seconds = row.seconds + f.micro
                        known = longer.get((i, used + n))
                        if known is None or seconds < known.seconds:
                            longer[i, used + n] = Row(seconds, ((i, j, first, f), *row.stages))
        rows = longer
        if (0, total) in rows:
            best[count] = rows[0, total]
    return best


def choice_of(found: Intervals, row: Row, schedule: str) -> Choice | None:
    """A row of stages as it would run: cut once more, with what really flows between its stages."""
    graph, weights = found.traced.graph, found.traced.weights
    stage_of_layer = {}
    for number, (i, j, _, _) in enumerate(row.stages):
        stage_of_layer.update(dict.fromkeys(range(i, j), number))
    stage_of = {n: s if s == ANYWHERE else stage_of_layer[s] for n, s in found.layer_of.items()}
    joints = cut(graph, weights, stage_of, len(row.stages))
    stages = []
    for number, (joint, (_, _, first, f)) in enumerate(zip(joints, row.stages, strict=True)):
        step = stage_step(joint, graph, found.micro_batches)
        place = Place(tuple(range(first, first + math.prod(f.shape))), f.shape)
        costs = found.costs(f.shape, first)
        if f.step is None:
            solution = replicated_solution(step, costs)
        elif step.content() == f.step.content():
            solution = _applied(step, _listed(f.step, f.solution))
        else:
            kept = min(found.micro_batches, len(row.stages) - number)
            solution = found.solution(step, costs, found.memory_limit, kept, f.recompute)
            if solution is None:
                return None
        stages.append(StageChoice(step, place, solution, costs, joint, f.recompute))
    return Choice(found.traced, stages, found.micro_batches, stage_of, schedule)
