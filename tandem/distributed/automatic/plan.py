"""parallelize: a plan of how a training step is divided over a mesh, and steps by it."""

from __future__ import annotations

import dataclasses
import json
import math

from tandem import _runtime, files
from tandem.autograd.modes import no_grad
from tandem.constructors import asarray
from tandem.distributed.automatic import decisions
from tandem.distributed.automatic.costs import Costs
from tandem.distributed.automatic.solve import Solution, kept_values, solve
from tandem.distributed.automatic.step import Step, trace_step
from tandem.distributed.automatic.strategies import Strategy
from tandem.distributed.sharding.layout import Grid, Placements, grid_of
from tandem.distributed.sharding.mesh import Mesh
from tandem.distributed.sharding.parts import parts_of
from tandem.distributed.sharding.placements import Replicate, Shard
from tandem.distributed.sharding.propagate import Sharder
from tandem.distributed.sharding.tensor import distribute_tensor, from_local
from tandem.distributed.topology import Topology
from tandem.errors import CheckpointError, ShapeError, ShardingError
from tandem.graph.ir import Builder, Graph, Node, Type, Value
from tandem.nn.module import Module
from tandem.nn.parameter import Parameter
from tandem.ops.define import add_input


class PlannedSharder(Sharder):
    """The pass that divides a graph, by strategies that are given instead of those that follow from the operands."""

    def __init__(self, grid: Grid, strategies: dict[Node, Strategy]):
        super().__init__(grid, strict=False)
        self.strategies = strategies
        self.moves: dict[Node, list[tuple[str, int]]] = {}  # what bringing operands to their places takes

    def _node(self, node: Node, given):
        chosen = self.strategies.get(node)
        if chosen is None:  # of an operator that is written in others
            return super()._node(node, given)
        before = len(self.mover.moved)
        placed = [
            (self.move(whole, v, old, new), new)
            for (v, old), whole, new in zip(given, node.inputs, chosen.inputs, strict=True)
        ]
        self.moves[node] = self.mover.moved[before:]
        return super()._node(node, placed)


@dataclasses.dataclass(frozen=True)
class Line:
    """One operator of a plan. moved: what bringing its operands to their placements takes, (collective, bytes) on one rank."""

    op: str
    source: str
    inputs: list[Placements]
    outputs: list[Placements]
    moved: list[tuple[str, int]]
    seconds: float


class ParallelPlan:
    """How a step is divided: made by `td.parallelize`.

    seconds: of a step, by the cost model; bound: no plan takes less; optimal: whether this is known to be the best
    collectives, bytes: what a rank takes part in, and puts in; memory: bytes of a rank, of weights, gradients, optimiser
    state and what backward needs
    """

    def __init__(self, step: Step, mesh, costs: Costs, solution: Solution, state: float):
        self._step, self._costs, self._solution, self._state = step, costs, solution, state
        self.mesh = mesh
        self.seconds, self.bound, self.optimal = solution.seconds, solution.bound, solution.optimal
        self._graph, self._sharder, self._outputs = self._divided(costs.grid)
        self._local = None

    # -- what it says

    @property
    def parameter_placements(self) -> list[Placements]:
        """How the parameters lie, in the order in which the function reads them."""
        return [self._solution.placements[self._step.graph.inputs[i]] for i in self._step.weights]

    @property
    def argument_placements(self) -> list[Placements]:
        return [self._solution.placements[v] for v in self._step.graph.inputs[: self._step.arguments]]

    @property
    def moved(self) -> list[tuple[str, int]]:
        return list(self._sharder.mover.moved)

    @property
    def collectives(self) -> dict[str, int]:
        made: dict[str, int] = {}
        for name, _ in self.moved:
            made[name] = made.get(name, 0) + 1
        return made

    @property
    def bytes(self) -> int:
        return sum(n for _, n in self.moved)

    @property
    def memory(self) -> float:
        step, lies = self._step, dict(self._solution.placements)
        for node, s in self._solution.strategies.items():
            lies.update(zip(node.outputs, s.outputs, strict=True))
        size = lambda v: self._costs.local_bytes(v.type, lies[v])
        weights = [step.graph.inputs[i] for i in step.weights]
        return (2 + self._state) * sum(map(size, weights)) + sum(map(size, kept_values(step)))

    def lines(self) -> list[Line]:
        made = []
        for node, s in self._solution.strategies.items():
            seconds = self._costs.compute(node, s.ways)
            made.append(
                Line(
                    node.op.name,
                    str(node.source or ""),
                    list(s.inputs),
                    list(s.outputs),
                    self._sharder.moves.get(node, []),
                    seconds,
                )
            )
        return made

    def explain(self) -> str:
        """Each operator that is divided or moves something: placements and bytes; and what all takes."""
        rows = []
        for line in self.lines():
            divided = any(not isinstance(p, Replicate) for ps in (*line.inputs, *line.outputs) for p in ps)
            if divided or line.moved:
                inputs, outputs = (", ".join(map(decisions.letters, ps)) for ps in (line.inputs, line.outputs))
                moved = "".join(f"  {name} {n:,} B" for name, n in line.moved)
                rows.append(f"  {line.op}: {inputs} -> {outputs}{moved}  {line.source}".rstrip())
        found = ", ".join(f"{n} {name}" for name, n in self.collectives.items()) or "no collectives"
        kind = (
            "optimal"
            if self.optimal
            else f"at most {self.seconds / self.bound - 1 if self.bound else 0:.1%} from the best"
        )
        return "\n".join([
            f"plan over {self._costs.grid.shape}: {self.seconds * 1e3:.3g} ms a step ({kind}), {self.memory / 2**20:.1f} MB a rank",
            *rows, f"{found}: {self.bytes:,} B on a rank",
        ])  # fmt: skip

    def alternatives(self) -> dict[str, float]:
        """Seconds of a step by ways that people choose by hand, in the same cost model: how arguments and parameters lie is fixed,
        everything else is the best for that."""
        step, whole = self._step, self._whole()
        rows = tuple(Shard(0) for _ in whole)
        weights = set(step.weights)

        def ways(arguments, parameters):
            def lies(position, placements):
                wanted = arguments if position < step.arguments else parameters if position in weights else None
                return [wanted] if wanted in placements else placements if wanted is None else [whole]

            return solve(step, self._costs, None, self._state, 10.0, 1e-3, lies).seconds

        return {
            "this plan": self.seconds, "data parallel": ways(rows, whole), "fully sharded": ways(rows, rows),
            "tensor parallel": ways(whole, None), "one rank's work on all": ways(whole, whole),
        }  # fmt: skip

    # -- steps by it

    def _divided(self, grid: Grid) -> tuple[Graph, PlannedSharder, list[Placements]]:
        """The graph of one rank."""
        step, placements = self._step, self._solution.placements
        graph = Graph(name="parallel_step")
        sharder = PlannedSharder(grid, self._solution.strategies)
        _runtime.enter_trace()
        try:
            with Builder(graph) as builder:
                inputs = [
                    add_input(builder, Type(v.dtype, grid.local_shape(v.shape, placements[v])))
                    for v in step.graph.inputs
                ]
                results = sharder.graph(step.graph, inputs, [placements[v] for v in step.graph.inputs])
                wanted = [self._whole(), *self.parameter_placements]
                graph.outputs = [
                    sharder.move(whole, v, old, new)
                    for (v, old), whole, new in zip(results, step.graph.outputs, wanted, strict=True)
                ]
        finally:
            _runtime.exit_trace()
        return graph, sharder, wanted

    def _whole(self) -> Placements:
        return (Replicate(),) * len(self._costs.grid.shape)

    def apply(self, module: Module | None = None) -> ParallelPlan:
        """Divides the parameters as the plan says: `parameters()` are sharded tensors then.

        module: in which they replace the old ones
        """
        self._need_mesh()
        step, divided = self._step, {}
        for i, placements in zip(step.weights, self.parameter_placements, strict=True):
            p = step.tensors[i - step.arguments]
            divided[id(p)] = Parameter(distribute_tensor(p.detach(), self.mesh, placements))
        if module is not None:
            for part in module.modules():
                for name, p in part._parameters.items():
                    part._parameters[name] = divided.get(id(p), p)
        step.tensors = [divided.get(id(t), t) for t in step.tensors]
        self._local = self._divided(grid_of(self.mesh))[0]
        return self

    def parameters(self) -> list:
        """What an optimiser is to update."""
        if self._local is None:
            self.apply()
        return [self._step.tensors[i - self._step.arguments] for i in self._step.weights]

    def step(self, *args):
        """The loss of a batch, on every rank, which all have the whole batch. Adds gradients to `.grad` of the parameters."""
        if self._local is None:
            self.apply()
        tensors = [asarray(a) for a in args]
        self._check(tensors)
        step, generator = self._step, _runtime.default_generator()
        seed, offset = generator.get_state()
        generator.set_state((seed, offset + step.draws))
        random = [seed if kind == "seed" else offset + delta for kind, delta in step.random]
        given = [*tensors, *step.tensors, *random]
        with no_grad():
            parts = [self._part(x, v) for x, v in zip(given, step.graph.inputs, strict=True)]
            loss, *gradients = self._local.run(*parts)
            for i, g, placements in zip(step.weights, gradients, self.parameter_placements, strict=True):
                p = step.tensors[i - step.arguments]
                made = from_local(g, self.mesh, placements, shape=tuple(p.shape))
                p.grad = made if p.grad is None else p.grad + made
        return loss

    def _part(self, x, v: Value):
        """This rank's part of an input."""
        if not isinstance(x, _runtime.Tensor):
            return asarray(x, dtype=v.dtype)
        parts = parts_of(x)
        if parts is not None:
            return parts.local
        grid = grid_of(self.mesh)
        for d, (start, count) in enumerate(grid.spans(v.shape, self._solution.placements[v])):
            if count != x.shape[d]:
                x = x.narrow(d, start, count)
        return x.detach()

    def _check(self, tensors: list):
        wanted = [v.type for v in self._step.graph.inputs[: self._step.arguments]]
        if len(tensors) != len(wanted) or any(
            t.dtype is not w.dtype or tuple(t.shape) != tuple(w.shape) for t, w in zip(tensors, wanted, strict=True)
        ):
            given = ", ".join(f"{t.dtype}{list(t.shape)}" for t in tensors)
            raise ShapeError("parallelize", f"step was given {given}; the plan is for {', '.join(map(repr, wanted))}")

    def _need_mesh(self):
        if not isinstance(self.mesh, Mesh):
            raise ShardingError(
                "parallelize", "the plan was made for a mesh that is only described, so it cannot be run",
                fix="give a td.distributed.Mesh of running ranks",
            )  # fmt: skip

    # -- files

    def save(self, path):
        """Writes the decisions; `load_plan` takes them for the same function, shapes and mesh."""
        kept = decisions.write(self._step, self._solution) | {
            "mesh": list(self._costs.grid.shape),
            "state": self._state,
        }
        files.write(path, json.dumps(kept))


def parallelize(fn, args, mesh, *, topology: Topology | None = None, memory_limit: float | None = None, state: float = 2.0,
                time_limit: float = 10.0, gap: float = 1e-3) -> ParallelPlan:  # fmt: skip
    """A plan that divides a training step over a mesh: for each operator how it is divided, for each parameter how it lies.

    fn: gives the loss of a batch; args: tensors of the shapes of a batch. fn runs once, on tensors without values
    mesh: a td.distributed.Mesh, or its shape, for a plan that is only looked at
    topology: what computing and moving costs; two processors with memory between them unless given
    memory_limit: bytes of a rank for weights, gradients, optimiser state and what backward needs
    state: bytes of optimiser state for each byte of a weight; 2 for Adam
    time_limit: seconds for the solver; then the best plan so far counts

    >>> w1, w2 = td.ones(64, 256, requires_grad=True), td.ones(256, 64, requires_grad=True)
    >>> loss = lambda x: (td.relu(x @ w1) @ w2).mean()
    >>> plan = td.parallelize(loss, (td.ones(8, 64),), mesh=(2,))
    >>> plan.optimal
    True
    """
    step = trace_step(fn, args)
    costs = _costs(mesh, topology)
    solved = lambda: solve(step, costs, memory_limit, state, time_limit, gap)
    solution = decisions.decide_together(step, mesh, solved) if isinstance(mesh, Mesh) else solved()
    return ParallelPlan(step, mesh, costs, solution, state)


def _costs(mesh, topology: Topology | None) -> Costs:
    shape = mesh.shape if isinstance(mesh, Mesh) else (mesh,) if isinstance(mesh, int) else tuple(mesh)
    grid = Grid(shape, (0,) * len(shape), tuple(range(len(shape))))
    return Costs(grid, topology or Topology.processors(math.prod(shape)))


def load_plan(path, fn, args, mesh, *, topology: Topology | None = None) -> ParallelPlan:
    """The plan that `save` wrote, for the same function, shapes and mesh."""
    with open(path, "rb") as file:
        try:
            kept = json.load(file)
            kept["graph"], kept["mesh"]
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError("load_plan", f"{str(path)!r} is no plan: {error}") from None
    step, costs = trace_step(fn, args), _costs(mesh, topology)
    if kept["graph"] != decisions.digest(step) or kept["mesh"] != list(costs.grid.shape):
        text = f"{str(path)!r} is a plan for another function, other shapes or another mesh"
        raise CheckpointError("load_plan", text)
    try:
        return ParallelPlan(step, mesh, costs, decisions.read(step, kept), float(kept["state"]))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CheckpointError("load_plan", f"{str(path)!r} is damaged: {error}") from None
