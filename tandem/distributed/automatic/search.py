"""The best plan for a cluster: one mesh of all ranks, or a pipeline of submeshes."""

from __future__ import annotations

import dataclasses
import math
import time

from tandem.autograd.modes import no_grad
from tandem.distributed.automatic.choice import Choice, StageChoice
from tandem.distributed.automatic.costs import Costs
from tandem.distributed.automatic.inter import SHARE, Intervals, Row, best_rows, choice_of, shapes_of, sizes_of
from tandem.distributed.automatic.interleave import interleaved_rows, is_runnable
from tandem.distributed.automatic.memory import plan_memory
from tandem.distributed.automatic.solve import replicated_solution, solve
from tandem.distributed.automatic.step import whole_step
from tandem.distributed.pipeline.assign import assign
from tandem.distributed.pipeline.places import Place
from tandem.distributed.pipeline.runtime import micro_batch, rows_of, trace_marked
from tandem.distributed.sharding.layout import REPLICATE, Grid
from tandem.distributed.sharding.placements import Shard
from tandem.distributed.topology import Topology
from tandem.distributed.traced import trace_loss
from tandem.errors import TandemError, ValueRangeError, warn
from tandem.random import randn

LAYERS = 8  # that a model is cut into, for each rank up to four of a row
SCHEDULES = ("1f1b", "zero_bubble")  # that are tried
ENOUGH = 0.5  # seconds that are worth beginning with another mesh
GAIN = 1.1  # of an even division of the work: plans that are nearer to it are good enough
FAR = 1.5  # times its bound: a plan for which the solver had too little time
EQUAL, ROUNDED = 1e-4, 1e-2  # differences of losses that may come from rounding, in float32 and in 16 bits
TIGHTER = 4  # tries with a smaller count where the memory planner needs more than the solver counts


# Ways that people choose by hand. Replicated: all ranks have the batch and all weights, and may divide the work between them.
WAYS = ("data parallel", "fully sharded", "tensor parallel", "replicated", "pipeline")


@dataclasses.dataclass
class Question:
    """What is asked for. layouts: shapes of one mesh; None to look for pipelines as well."""

    fn: object
    args: tuple
    topology: Topology
    layouts: list[tuple[int, ...]] | None
    memory_limit: float | None
    state: float
    time_limit: float
    gap: float
    micro_batches: int | None = None
    schedule: str | None = None
    stages: int | None = None
    recompute: bool | None = None
    way: str | None = None
    running: bool = False  # whether the plan is for ranks that run
    times: object = None
    memos: dict = dataclasses.field(default_factory=dict)

    def costs(self, shape: tuple[int, ...]) -> Costs:
        grid = Grid(shape, (0,) * len(shape), tuple(range(len(shape))))
        return Costs(grid, self.topology, 0, self.state, self.times, self.memos)


class Search:
    def __init__(self, question: Question):
        self.q = question
        self.began = time.monotonic()
        self.measured = question.times.spent if question.times is not None else 0.0
        self.solved: dict = {}
        self.traced = trace_loss("parallelize", question.fn, question.args)
        self.step = whole_step(self.traced)
        self.refused: list[str] = []  # why there were no pipelines
        self.differs: dict[int, str] = {}  # by number of micro-batches: why they are of no use, or nothing

    @property
    def left(self) -> float:
        """Seconds of the limit. What measuring operators takes does not count: that is done once on a machine."""
        spent = self.q.times.spent - self.measured if self.q.times is not None else 0.0
        return max(self.q.time_limit + spent - (time.monotonic() - self.began), 0.1)

    @property
    def is_over(self) -> bool:
        return self.left <= 0.1

    def best(self) -> Choice:
        limit = self.q.memory_limit
        for _ in range(TIGHTER):
            found = sorted(self.choices(limit), key=lambda c: c.seconds)
            if found and limit is None:
                return found[0]
            over = []
            for choice in found:
                needed = plan_memory(choice)
                if needed <= self.q.memory_limit:
                    return choice
                over.append((needed - self.q.memory_limit, choice.memory))
            if not over or min(over)[0] >= limit:
                break
            limit = min(limit, min(over)[1]) - min(over)[0]  # the solver counts less than the planner does
        if self.refused and self.q.memory_limit is None:
            raise ValueRangeError("parallelize", f"no plan was found: {self.refused[0]}")
        why = (
            "the time is over"
            if self.q.memory_limit is None
            else f"each needs more than {self.q.memory_limit:,.0f} bytes"
        )
        raise ValueRangeError(
            "parallelize", f"no plan was found: {why}",
            fix="give more time (time_limit=), more memory (memory_limit=) or more ranks",
        )  # fmt: skip

    def found(self) -> Choice:
        """The best plan; what was measured for it is kept."""
        try:
            return self.best() if self.q.way is None else self._required(self.q.way)
        finally:
            if self.q.times is not None:
                self.q.times.save()

    def _required(self, name: str) -> Choice:
        if name not in WAYS:
            raise ValueRangeError("parallelize", f"way={name!r} must be one of {list(WAYS)}")
        choice = self.way(name)
        if choice is None:
            raise ValueRangeError(
                "parallelize", f"there is no plan of the kind {name!r} here", fix="give a Topology, not a mesh"
            )
        return choice

    @property
    def _takes_meshes(self) -> bool:
        """Whether a plan without micro-batches and stages may be an answer."""
        return self.q.micro_batches in (None, 1) and self.q.stages in (None, 1)

    def choices(self, limit: float | None) -> list[Choice]:
        """The best of each kind: rows of ranks first, which are solved quickly, pipelines, then grids with what time is left."""
        found = []
        shapes = self.q.layouts or shapes_of(self.q.topology.devices, 0, self.q.topology)
        if not self._takes_meshes:
            shapes = []
        found += self._on_meshes([s for s in shapes if len(s) == 1], limit)
        if self.q.layouts is None:
            known = min((c.seconds for c in found), default=math.inf) if limit is None else math.inf
            found += self.pipelines(limit, known=known)
        if self.q.layouts is not None or limit is not None or self._could_gain(found):
            found += self._on_meshes([s for s in shapes if len(s) > 1], limit)
        if not found and shapes and limit is None:  # no time for any: a plan that needs no search
            found.append(self._replicated(shapes[0]))
        return found

    def _could_gain(self, found: list[Choice]) -> bool:
        """Whether the best plan so far takes noticeably longer than the work would if ranks shared it and nothing was moved; and
        over several nodes, where the axes of a grid have different links."""
        if self.q.topology.nodes > 1:
            return True
        costs = self.q.costs((1,))
        alone = replicated_solution(self.step, costs).seconds
        known = min((c.seconds for c in found), default=math.inf)
        return known > GAIN * alone / self.q.topology.devices

    def _replicated(self, shape: tuple[int, ...]) -> Choice:
        costs = self.q.costs(shape)
        solution = dataclasses.replace(replicated_solution(self.step, costs), bound=0.0, optimal=False)
        return Choice(self.traced, [StageChoice(self.step, self._place(shape), solution, costs)])

    @staticmethod
    def _place(shape: tuple[int, ...]) -> Place:
        return Place(tuple(range(math.prod(shape))), shape)

    def _on_meshes(self, shapes: list[tuple[int, ...]], limit: float | None) -> list[Choice]:
        found = []
        for shape in shapes:
            if self.q.layouts is None and self.left < ENOUGH:
                break
            try:
                found.append(self.on_one_mesh(shape, limit, must=not found))
                if limit is None and found[-1].seconds > FAR * found[-1].bound:  # the time was over
                    found += [self._replicated(shape), self._by_way("data parallel", shape)]
            except ValueRangeError:
                continue
        return found

    def on_one_mesh(self, shape: tuple[int, ...], limit: float | None, lies=None, must: bool = True) -> Choice:
        """must: whether to take the time that writing the integer program takes, if there is none left."""
        costs = self.q.costs(shape)
        solution = solve(self.step, costs, limit, max(self.left, ENOUGH if must else 0.0), self.q.gap, lies, must=must)
        return Choice(self.traced, [StageChoice(self.step, self._place(shape), solution, costs)])

    # -- pipelines

    def pipelines(self, limit: float | None, sizes: list[int] | None = None, known: float = math.inf) -> list[Choice]:
        """The best of each kind, of those that may take less than `known` seconds a step."""
        if self.q.topology.devices == 1 or (self.traced.written and self.q.micro_batches is None):
            return []  # statistics of a batch are not those of its micro-batches
        found = []
        for count in self._useful_counts():
            try:
                found += self._pipelines(count, limit, sizes, known)
            except TandemError as error:
                self.refused.append(f"{count} micro-batches: {error}")
            known = min([known, *(c.seconds for c in found)]) if limit is None else known
        return found

    def _useful_counts(self) -> list[int]:
        """Numbers of micro-batches whose mean loss is that of the batch, as far as running ranks can try. Those that were asked
        for are taken with a warning."""
        counts = self.micro_batch_counts()
        if not self.q.running or self.traced.draws or self.traced.written:
            return counts  # where numbers are drawn, losses differ anyway
        asked = self.q.micro_batches is not None or self.q.stages is not None
        useful = []
        for count in counts:
            if count not in self.differs:
                self.differs[count] = self._why_no_mean(count)
                if asked and self.differs[count]:
                    warn(
                        f"parallelize: with {count} micro-batches, {self.differs[count]}: gradients differ, too",
                        UserWarning,
                    )
            if asked or not self.differs[count]:
                useful.append(count)
            else:
                self.refused.append(self.differs[count])
        return useful

    def _why_no_mean(self, count: int) -> str:
        """What tells that the loss of two micro-batches together is not the mean of theirs: tried, on arguments of these shapes."""
        rows = rows_of("parallelize", self.q.args, count)
        values = [randn(*a.shape, dtype=a.dtype) if a.dtype.is_floating_point else a for a in self.q.args]
        try:
            with no_grad():
                first, second = (self.q.fn(*micro_batch(values, rows, count, m)) for m in range(2))
                each = rows // count
                both = [a[: 2 * each] if a.ndim and a.shape[0] == rows else a for a in values]
                loss = self.q.fn(*both)
        except TandemError as error:
            return f"a micro-batch has no loss of its own ({error.rule})"
        whole, mean = loss.item(), (first.item() + second.item()) / 2
        close = EQUAL if loss.dtype.itemsize > 2 else ROUNDED
        if abs(whole - mean) <= close * max(abs(whole), abs(mean)) or not math.isfinite(whole):
            return ""
        return f"the loss of a batch is {whole:.6g} where the mean of its micro-batches is {mean:.6g}"

    def micro_batch_counts(self) -> list[int]:
        if self.q.micro_batches is not None:
            return [self.q.micro_batches]
        shape = tuple(self.q.args[0].shape) if self.q.args and hasattr(self.q.args[0], "shape") else ()
        rows = shape[0] if shape else 1
        wanted = [self.q.topology.devices * k for k in (2, 4)]
        divisors = [d for d in range(2, rows + 1) if rows % d == 0]
        return sorted({min(divisors, key=lambda d: (abs(math.log(d / w)), d)) for w in wanted}) if divisors else []

    def _pipelines(self, count: int, limit: float | None, sizes, known: float) -> list[Choice]:
        batch = rows_of("parallelize", self.q.args, count)
        traced = trace_marked(self.q.fn, micro_batch(self.q.args, batch, count), op="parallelize")
        marked = any(n.op.name == "stage_boundary" for n in traced.graph.nodes)
        most = self.q.stages or min(self.q.topology.devices, 16)
        layer_of, layers = assign(traced.graph, set(traced.weights), None if marked else self._layers(traced, most))
        q = self.q
        intervals = Intervals(
            traced, layer_of, layers, count, q.topology, state=q.state, times=q.times, gap=max(q.gap, 1e-2),
            until=time.monotonic() + 0.6 * self.left, memory_limit=limit, solved=self.solved, recompute=q.recompute,
            known=known, must=not self._takes_meshes, memos=q.memos,
        )  # fmt: skip
        if sizes is None and limit is None and q.stages != 1:  # micro-batches without stages only save memory
            sizes = [n for n in sizes_of(q.topology) if n < q.topology.devices]
        rows = best_rows(intervals, q.stages or min(most, layers), q.stages or 1, sizes)
        names = [q.schedule] if q.schedule is not None else list(SCHEDULES)
        several = []
        if q.schedule in (None, "interleaved"):
            several = self._made(intervals, interleaved_rows(intervals, sizes, q.stages), ["interleaved"], known)
        if several and q.schedule is not None:
            return several
        if limit is None:
            known = min([known, *(c.seconds for c in several)])
        return several + self._made(intervals, rows, names, known)

    def _made(self, intervals: Intervals, rows: list[Row], names: list[str], known: float) -> list[Choice]:
        """Rows as they would run, by each of these schedules; the most promising ones first, and none that cannot be the best."""
        count, found = intervals.micro_batches, []
        for row in sorted(rows, key=lambda row: row.least(count)):
            if SHARE * row.least(count) > known or (found and self.is_over):
                break
            choice = choice_of(intervals, row, names[0])
            if choice is None or not is_runnable(choice):
                continue
            for name in names if len(choice.stages) > 1 else ["gpipe"]:
                if name != "interleaved" or count % len(choice.rows) == 0:
                    found.append(dataclasses.replace(choice, schedule_name=name))
                    known = min(known, found[-1].seconds) if intervals.memory_limit is None else known
        return found

    def _layers(self, traced, most: int) -> int:
        nodes = sum(not n.op.is_input for n in traced.graph.nodes)
        return max(2, min(LAYERS if most <= 4 else 2 * most, nodes // 2))

    # -- ways that people choose by hand

    def usual(self) -> dict[str, Choice]:
        """The best of each usual way."""
        found = {}
        for name in WAYS:
            self.began = time.monotonic()
            choice = self.way(name)
            if choice is not None:
                found[name] = choice
        return found

    def way(self, name: str) -> Choice | None:
        """The best choice of a usual way; how arguments and parameters lie is fixed, everything else is what is best for that.
        None where a way is not open: pipelines on a mesh."""
        if name == "pipeline":
            single = self.pipelines(None, [1]) if self.q.layouts is None else []
            return min(single, key=lambda c: c.seconds, default=None)
        shape = (self.q.layouts or shapes_of(self.q.topology.devices, 0, self.q.topology))[-1]
        if self.q.topology.nodes == 1 and self.q.layouts is None:
            shape = (self.q.topology.devices,)
        return self._by_way(name, shape)

    def _by_way(self, name: str, shape: tuple[int, ...]) -> Choice:
        whole, rows = (REPLICATE,) * len(shape), (Shard(0),) * len(shape)
        arguments = whole if name in ("tensor parallel", "replicated") else rows
        parameters = {"fully sharded": rows, "tensor parallel": None}.get(name, whole)
        weights = set(self.step.weights)

        def lies(position, placements):
            wanted = arguments if position < self.traced.arguments else parameters if position in weights else None
            return [wanted] if wanted in placements else placements if wanted is None else [whole]

        return self.on_one_mesh(shape, None, lies)
