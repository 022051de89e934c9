"""parallelize: a plan of how a training step is divided over ranks, and steps by it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
from typing import NamedTuple

from tandem import _runtime, files
from tandem.autograd.modes import no_grad
from tandem.distributed import measure  # which imports this package
from tandem.distributed.automatic import decisions, page
from tandem.distributed.automatic.choice import Choice, StageChoice
from tandem.distributed.automatic.divide import Divided, divide, divided_stage
from tandem.distributed.automatic.memory import plan_memory, stage_memory
from tandem.distributed.automatic.search import Question, Search
from tandem.distributed.group import group_of, is_initialized
from tandem.distributed.pipeline.places import blocks
from tandem.distributed.pipeline.runtime import Pipeline
from tandem.distributed.pipeline.step import part_of
from tandem.distributed.pipeline.timeline import Timeline
from tandem.distributed.sharding.layout import Placements, grid_of
from tandem.distributed.sharding.mesh import Mesh
from tandem.distributed.sharding.placements import Replicate
from tandem.distributed.sharding.tensor import distribute_tensor, from_local
from tandem.distributed.topology import Topology
from tandem.errors import CheckpointError, ShapeError, ShardingError
from tandem.nn.module import Module
from tandem.nn.parameter import Parameter
from tandem.tensors.constructors import asarray


@dataclasses.dataclass(frozen=True)
class Line:
    """One operator of a plan. moved: what bringing its operands to their placements takes, (collective, bytes) on one rank."""

    op: str
    source: str
    inputs: list[Placements]
    outputs: list[Placements]
    moved: list[tuple[str, int]]
    seconds: float
    stage: int = 0


class Alternative(NamedTuple):
    """A way to divide the step. seconds: of a step; bytes: that the busiest rank sends or puts into collectives in a step;
    idle: the part of the time that ranks wait for one another's stages; memory: of the fullest rank, by the solver's count."""

    seconds: float
    bytes: int
    idle: float
    memory: float


class ParallelPlan:
    """How a step is divided: made by `td.parallelize`.

    seconds: of a step, by the cost model; bound: no plan of one stage takes less; optimal: whether each stage's division is known
    to be the best
    stages, micro_batches: of the pipeline; 1 where all ranks compute all layers together
    collectives, bytes: what a rank takes part in during a step, and puts in; sent: bytes that it sends to other stages
    memory: bytes of the fullest rank, by the memory planner
    """

    def __init__(self, choice: Choice, question: Question, mesh, group=None):
        self.choice, self._question, self.mesh, self._group = choice, question, mesh, group
        self.seconds, self.bound, self.optimal = choice.seconds, choice.bound, choice.optimal
        self._local = self._pipe = None
        self._tensors = list(choice.traced.tensors)

    # -- what it says

    @property
    def stages(self) -> list[StageChoice]:
        return self.choice.stages

    @property
    def micro_batches(self) -> int:
        return self.choice.micro_batches

    @property
    def timeline(self) -> Timeline:
        """What stages do when, by the cost model: a picture, and a trace for Perfetto."""
        return self.choice.timeline

    @functools.cached_property
    def _divided(self) -> list[Divided]:
        return [divide(s.step, s.solution, s.costs.grid) for s in self.stages]

    @property
    def parameter_placements(self) -> list[Placements]:
        """How the parameters lie, in the order in which the function reads them; a tied one once for each stage that has it."""
        return [s.solution.placements[s.step.graph.inputs[i]] for s in self.stages for i in s.step.weights]

    @property
    def argument_placements(self) -> list[Placements]:
        """How the arguments lie in the first stage that reads them."""
        found = {}
        for s in self.stages:
            inputs = s.step.graph.inputs
            values = self.choice.traced.graph.inputs if s.joint is None else s.joint.inputs
            for v, own in zip(values, inputs, strict=False):
                found.setdefault(v, s.solution.placements[own])
        return [found[v] for v in self.choice.traced.graph.inputs[: self.choice.traced.arguments] if v in found]

    @property
    def moved(self) -> list[tuple[str, int]]:
        """(collective, bytes) on a rank in a step: of those that move most."""
        return max((self._moved(row) for row in self.choice.rows), key=lambda moved: sum(n for _, n in moved))

    def _moved(self, row: list[int]) -> list[tuple[str, int]]:
        made = [self._divided[stage] for stage in row]
        return [x for d in made for x in d.moved * self.micro_batches + d.moved_once]

    @property
    def collectives(self) -> dict[str, int]:
        made: dict[str, int] = {}
        for name, _ in self.moved:
            made[name] = made.get(name, 0) + 1
        return made

    @property
    def bytes(self) -> int:
        return sum(n for _, n in self.moved)

    def sent(self, rank: int) -> int:
        """Bytes that a rank sends to other stages in a step."""
        total = 0
        count = len(self.stages)
        for a in range(count):
            if rank in self.stages[a].place.ranks:
                for b in range(count):
                    if a != b:
                        total += self.choice.sent_between(b > a, a, b).get(rank, 0)
        return total * self.micro_batches + self._sent_for_tied(rank)

    def _sent_for_tied(self, rank: int) -> int:
        """Gradients of weights that several stages have."""
        if self._is_whole:
            return 0
        total = 0
        held = [
            {v: self.stages[s] for s in reversed(row) for v in self.stages[s].joint.weights} for row in self.choice.rows
        ]
        for a, b in itertools.permutations(held, 2):
            for v in set(a) & set(b):
                places = [s.solution.placements[s.step.graph.inputs[s.joint.inputs.index(v)]] for s in (a[v], b[v])]
                found = blocks(tuple(v.shape), a[v].place, places[0], b[v].place, places[1])
                total += sum(x.elements for x in found if x.source == rank) * v.dtype.itemsize
        return total

    @functools.cached_property
    def memory(self) -> float:
        return plan_memory(self.choice)

    def lines(self) -> list[Line]:
        return [
            Line(
                node.op.name, str(node.source or ""), list(s.inputs), list(s.outputs),
                self._divided[number].sharder.moves.get(node, []), stage.costs.compute(node, s), number,
            )
            for number, stage in enumerate(self.stages)
            for node, s in stage.solution.strategies.items()
        ]  # fmt: skip

    def explain(self, alternatives: bool = False) -> str:
        """Each operator that is divided or moves something: placements and bytes; what stages take; and what all takes.

        alternatives: whether to add a table of the ways that people choose by hand; each is solved for
        """
        lines = self.lines()
        text = [self._headline()]
        for number, s in enumerate(self.stages):
            if len(self.stages) > 1 or self.micro_batches > 1:
                text.append(self._stage_line(number, s))
            text += [made for line in lines if line.stage == number and (made := _told(line))]
        found = ", ".join(f"{n} {name}" for name, n in self.collectives.items()) or "no collectives"
        text.append(f"{found}: {self.bytes:,} B on a rank")
        if alternatives:
            text += ["", self.table()]
        return "\n".join(text)

    def _headline(self) -> str:
        proof = (
            f"at most {self.seconds / self.bound - 1:.1%} from the best" if self.bound else "the best that was found"
        )
        whole = len(self.stages) == 1 and self.micro_batches == 1
        kind = "optimal" if self.optimal and whole else proof
        if whole:
            where = f"plan over {self.stages[0].place.shape}"
        else:
            places = len(self.choice.rows)
            several = f" at {places} places" if places != len(self.stages) else ""
            where = f"plan of {len(self.stages)} stages{several}, {self.micro_batches} micro-batches"
        return f"{where}: {self.seconds * 1e3:.3g} ms a step ({kind}), {self.memory / 2**20:.1f} MB a rank"

    def _stage_line(self, number: int, s: StageChoice) -> str:
        t, row = s.times, self.timeline.rows[number % len(self.choice.rows)]
        idle = 1 - sum(x.end - x.begin for x in row) / self.timeline.total
        return (
            f"stage {number} on ranks {list(s.place.ranks)} as {s.place.shape}: forward {t.forward * 1e3:.3g} ms, backward "
            f"{(t.inputs + t.weights) * 1e3:.3g} ms a micro-batch, {idle:.0%} idle, "
            f"{stage_memory(self.choice, number) / 2**20:.1f} MB{', recomputes' if s.recompute else ''}"
        )

    def alternatives(self) -> dict[str, Alternative]:
        """This plan and ways that people choose by hand, in the same cost model: how arguments and parameters lie is fixed,
        everything else is the best for that; a pipeline with one rank for each stage is cut as well as it can be."""
        return {"this plan": self._as_alternative(self), **self._usual}

    @functools.cached_property
    def _usual(self) -> dict[str, Alternative]:
        usual = Search(dataclasses.replace(self._question, way=None)).usual()
        return {name: self._as_alternative(ParallelPlan(c, self._question, None)) for name, c in usual.items()}

    @staticmethod
    def _as_alternative(plan: ParallelPlan) -> Alternative:
        c = plan.choice
        ranks = [r for s in c.stages for r in s.place.ranks]
        sent = max(plan.sent(r) for r in ranks)
        return Alternative(plan.seconds, plan.bytes + sent, c.idle, c.memory)

    def table(self) -> str:
        """The alternatives as a table."""
        rows = [f"{'':24}{'ms a step':>12}{'bytes a rank':>16}{'idle':>8}{'MB a rank':>12}"]
        for name, a in sorted(self.alternatives().items(), key=lambda item: item[1].seconds):
            rows.append(f"{name:24}{a.seconds * 1e3:12.3g}{a.bytes:16,}{a.idle:8.0%}{a.memory / 2**20:12.1f}")
        return "\n".join(rows)

    def view(self, path=None) -> str:
        """A page with the plan: stages on ranks, the timeline, the table of alternatives, and each operator. Written to path, if
        there is one; gives the HTML text."""
        text = page.render(self)
        if path is not None:
            files.write(path, text, durable=False)
        return text

    def _repr_html_(self) -> str:
        return self.view()

    # -- steps by it

    @property
    def _is_whole(self) -> bool:
        return self.stages[0].joint is None

    def apply(self, module: Module | None = None) -> ParallelPlan:
        """Divides the parameters as the plan says: `parameters()` are sharded tensors then, those of this rank's stage.

        module: in which they replace the old ones
        """
        self._need_ranks()
        if self._is_whole:
            self._local = divide(self.stages[0].step, self.stages[0].solution, grid_of(self.mesh)).graph
            mine, mesh = [(self.stages[0], self.choice.traced.graph.inputs)], self.mesh
        else:
            mesh = self._make_pipeline()
            mine = [(self.stages[s], self.stages[s].joint.inputs) for s in self.choice.rows[self._pipe.row]]
        traced, divided, of_value = self.choice.traced, {}, {}
        tensors = dict(zip(traced.graph.inputs[traced.arguments :], traced.tensors, strict=False))
        for s, values in mine:
            for i in s.step.weights:
                p = tensors[values[i]]
                if id(p) not in divided:
                    lies = s.solution.placements[s.step.graph.inputs[i]]
                    divided[id(p)] = Parameter(distribute_tensor(p.detach(), mesh, lies))
                of_value[values[i]] = divided[id(p)]
        if module is not None:
            for part in module.modules():
                for name, p in part._parameters.items():
                    part._parameters[name] = divided.get(id(p), p)
        self._tensors = [divided.get(id(t), t) for t in traced.tensors]
        if self._pipe is not None:
            self._pipe.replace(of_value)
        return self

    def _make_pipeline(self) -> Mesh:
        group, choice = self._group, self.choice
        rank = group.rank()
        places = [self.stages[row[0]].place for row in choice.rows]
        meshes = [Mesh(place.shape, ranks=[group.ranks[r] for r in place.ranks]) for place in places]
        mine = next(i for i, place in enumerate(places) if rank in place.ranks)
        tokens = tuple(g.token for g in meshes[mine].groups)
        stages = [
            divided_stage(s.joint, s.step, s.solution, s.place, rank, tokens, s.recompute)[0] for s in self.stages
        ]
        self._pipe = Pipeline.planned(choice.traced, self._question.args, stages, choice.schedule, group, meshes[mine])
        self.mesh = meshes[mine]
        return meshes[mine]

    def parameters(self) -> list:
        """What an optimiser is to update: the parameters of this rank's stage."""
        self._need_applied()
        if self._pipe is not None:
            return self._pipe.parameters()
        first = self.choice.traced.arguments
        return [self._tensors[i - first] for i in self.stages[0].step.weights]

    def _need_applied(self):
        if self._local is None and self._pipe is None:
            self.apply()

    def step(self, *args):
        """The loss of a batch, on every rank, which all have the whole batch. Adds gradients to `.grad` of the parameters."""
        self._need_applied()
        if self._pipe is not None:
            return self._pipe.step(*args)
        tensors = [asarray(a) for a in args]
        self._check(tensors)
        traced, s = self.choice.traced, self.stages[0]
        given = [*tensors, *self._tensors, *traced.numbers(0, traced.advance())]
        inputs, first = s.step.graph.inputs, traced.arguments
        rank = self._index
        with no_grad():
            parts = [
                part_of(x, s.place, rank, v, s.solution.placements[v]) if isinstance(x, _runtime.Tensor)
                else asarray(x, dtype=v.dtype)
                for x, v in zip(given, inputs, strict=True)
            ]  # fmt: skip
            loss, *results = self._local.run(*parts)
            count = len(traced.written)
            for buffer, new in zip(traced.written, results[:count], strict=True):
                buffer.copy_(new)
            for i, g in zip(s.step.weights, results[count:], strict=True):
                p = self._tensors[i - first]
                made = from_local(g, self.mesh, s.solution.placements[inputs[i]], shape=tuple(p.shape))
                p.grad = made if p.grad is None else p.grad + made
        return loss

    @property
    def _index(self) -> int:
        """This rank's number in the mesh."""
        index = 0
        for n, c in zip(self.mesh.shape, self.mesh.coordinate, strict=True):
            index = index * n + c
        return index

    def _check(self, tensors: list):
        traced = self.choice.traced
        wanted = [v.type for v in traced.graph.inputs[: traced.arguments]]
        if len(tensors) != len(wanted) or any(
            t.dtype is not w.dtype or tuple(t.shape) != tuple(w.shape) for t, w in zip(tensors, wanted, strict=True)
        ):
            given = ", ".join(f"{t.dtype}{list(t.shape)}" for t in tensors)
            raise ShapeError("parallelize", f"step was given {given}; the plan is for {', '.join(map(repr, wanted))}")

    def _need_ranks(self):
        if self._is_whole and self._group is not None and not isinstance(self.mesh, Mesh):
            self.mesh = Mesh(self.stages[0].place.shape)
        if not isinstance(self.mesh, Mesh) if self._is_whole else self._group is None:
            raise ShardingError(
                "parallelize", "the plan was made for a mesh that is only described, so it cannot be run",
                fix="give a td.distributed.Mesh of running ranks, or as many ranks as the topology has",
            )  # fmt: skip

    # -- files

    def save(self, path):
        """Writes the decisions; `load_plan` takes them for the same function, shapes and ranks."""
        kept = decisions.write(self.choice) | {"state": self._question.state}
        files.write(path, json.dumps(kept))


def _told(line: Line) -> str:
    divided = any(not isinstance(p, Replicate) for ps in (*line.inputs, *line.outputs) for p in ps)
    if not divided and not line.moved:
        return ""
    inputs, outputs = (", ".join(map(decisions.letters, ps)) for ps in (line.inputs, line.outputs))
    moved = "".join(f"  {name} {n:,} B" for name, n in line.moved)
    return f"  {line.op}: {inputs} -> {outputs}{moved}  {line.source}".rstrip()


def parallelize(fn, args, mesh=None, *, topology: Topology | None = None, memory_limit: float | None = None,
                state: float = 2.0, time_limit: float = 10.0, gap: float = 1e-3, micro_batches: int | None = None,
                schedule: str | None = None, stages: int | None = None, recompute: bool | None = None,
                way: str | None = None) -> ParallelPlan:  # fmt: skip
    """A plan that divides a training step over ranks: for each operator how it is divided, for each parameter how it lies, and
    which ranks compute which layers.

    fn: gives the loss of a batch; args: tensors of the shapes of a batch. fn runs once, on tensors without values
    mesh: a td.distributed.Mesh, or its shape, for a plan that is only looked at: all layers are divided over it. A Topology, or
        nothing for the measured one of the running ranks: pipelines of several meshes are looked at as well. For those the loss
        must be a mean over the rows of a batch
    topology: what computing and moving costs on a mesh; two processors with memory between them unless given
    memory_limit: bytes of a rank for weights, gradients, optimiser state and what programs take, as the memory planner counts
    state: bytes of optimiser state for each byte of a weight; 2 for Adam
    time_limit: seconds for the search; then the best plan so far counts. Measuring operators, once on a machine, comes to that
    micro_batches, stages, recompute: of a pipeline; unless given, some multiples of the number of ranks, all numbers of stages,
        and both are tried. schedule: as for td.distributed.Pipeline; 1f1b, zero_bubble and interleaved are tried unless given
    way: the best plan of a usual kind instead: "data parallel", "fully sharded", "tensor parallel", "replicated" or "pipeline"

    >>> w1, w2 = td.ones(64, 256, requires_grad=True), td.ones(256, 64, requires_grad=True)
    >>> loss = lambda x: (td.relu(x @ w1) @ w2).mean()
    >>> plan = td.parallelize(loss, (td.ones(8, 64),), mesh=(2,))
    >>> plan.optimal
    True
    """
    question, group = _question(
        fn, args, mesh, topology, memory_limit=memory_limit, state=state, time_limit=time_limit, gap=gap,
        micro_batches=micro_batches, schedule=schedule, stages=stages, recompute=recompute, way=way,
    )  # fmt: skip
    search = lambda: Search(question).found()
    if isinstance(mesh, Mesh):
        kept = decisions.decide_together(mesh.groups, mesh.coordinate, search)
    elif group is not None:
        kept = decisions.decide_together([group], (group.rank(),), search)
    else:
        return ParallelPlan(search(), question, mesh)
    return ParallelPlan(_read(kept, question), question, mesh if isinstance(mesh, Mesh) else None, group)


def _question(fn, args, mesh, topology: Topology | None, **options) -> tuple[Question, object]:
    """What is asked for, and the running ranks if there are as many."""
    options = {"memory_limit": None, "state": 2.0, "time_limit": 10.0, "gap": 1e-3, **options}
    args = tuple(asarray(a) for a in args)
    if mesh is None or isinstance(mesh, Topology):
        found = mesh or topology or measure.measured()
        running = group_of(None, "parallelize") if is_initialized() else None
        running = running if running is not None and running.size() == found.devices else None
        options["running"] = running is not None
        return Question(fn, args, found, None, times=found.device.times, **options), running
    shape = mesh.shape if isinstance(mesh, Mesh) else (mesh,) if isinstance(mesh, int) else tuple(mesh)
    found = topology or Topology.processors(math.prod(shape))
    return Question(fn, args, found, [shape], times=found.device.times, **options), None


def _read(kept: dict, question: Question) -> Choice:
    traced = decisions.retrace(kept, question.fn, question.args)
    try:
        return decisions.read(kept, traced, question.topology, question.state, question.times)
    except ValueError as error:
        raise ShardingError(
            "parallelize", f"the function is not the same on all ranks: {error}",
            fix="make models and shapes equal on all ranks",
        ) from error  # fmt: skip


def load_plan(path, fn, args, mesh=None, *, topology: Topology | None = None) -> ParallelPlan:
    """The plan that `save` wrote, for the same function, shapes and ranks."""
    with open(path, "rb") as file:
        try:
            kept = json.load(file)
            kept["graph"], kept["stages"], kept["state"]
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError("load_plan", f"{str(path)!r} is no plan: {error}") from None
    question, group = _question(fn, args, mesh, topology, state=float(kept["state"]))
    try:
        choice = decisions.read(
            kept, decisions.retrace(kept, fn, question.args), question.topology, question.state, question.times
        )
        shapes = [s.place.shape for s in choice.stages]
        ranks = sum(len(choice.stages[row[0]].place.ranks) for row in choice.rows)
        if ranks != question.topology.devices or (question.layouts and shapes != question.layouts):
            raise ValueError(f"it is for meshes {shapes}")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        text = f"{str(path)!r} is a plan for another function, other shapes or other ranks: {error}"
        raise CheckpointError("load_plan", text) from None
    return ParallelPlan(choice, question, mesh if isinstance(mesh, Mesh) else None, group)
