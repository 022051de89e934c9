"""Training steps of a pipeline: each rank does its part of the schedule, and tensors go from rank to rank."""

from __future__ import annotations

import contextlib
import threading

import tandem.ops as F
from tandem.autograd.modes import no_grad
from tandem.distributed.collectives import irecv, isend
from tandem.distributed.functional import all_reduce_coalesced
from tandem.distributed.group import ProcessGroup, group_of
from tandem.distributed.pipeline.assign import assign
from tandem.distributed.pipeline.cut import cut
from tandem.distributed.pipeline.places import Place, blocks
from tandem.distributed.pipeline.schedule import Schedule, schedule_of
from tandem.distributed.pipeline.stages import Stage, whole_stage
from tandem.distributed.pipeline.step import Step, messages_of, route
from tandem.distributed.pipeline.verify import verify
from tandem.distributed.sharding.tensor import from_local
from tandem.distributed.traced import Traced, trace_loss
from tandem.errors import DistributedError, ShapeError, ValueRangeError
from tandem.graph.ir import Value
from tandem.tensors.constructors import asarray, empty, zeros

_cutting = threading.local()  # on: whether marks count in this thread


def stage(x):
    """Marks in a model where a stage of a pipeline ends: x is what the next stage begins with. Without a pipeline it is x itself.

    >>> td.distributed.stage(td.ones(2))
    tensor([1., 1.])
    """
    return F.stage_boundary(x) if getattr(_cutting, "on", False) else x


@contextlib.contextmanager
def _marks_count(modules=()):
    """While inside, marks count, and stages begin with these modules."""
    begins = lambda module, args: (stage(args[0]), *args[1:])
    handles = [m.register_forward_pre_hook(begins) for m in modules]
    _cutting.on = True
    try:
        yield
    finally:
        _cutting.on = False
        for handle in handles:
            handle.remove()


def trace_marked(fn, args, modules=(), op: str = "pipeline") -> Traced:
    with _marks_count(modules):
        return trace_loss(op, fn, args)


class Pipeline:
    """A loss function whose stages are on different ranks. Every rank makes it, with equal weights, and calls `step`.

    fn: gives the loss of a batch, the mean over its rows; it runs once, on tensors without values
    args: tensors of the shapes and types of a batch; those with as many rows as the first are divided into micro-batches
    micro_batches: into how many
    schedule: "gpipe", "1f1b", "zero_bubble", "interleaved", or a Schedule
    stages: into how many stages of equal work to cut; or the modules that stages after the first begin with; None for the
        stages that td.distributed.stage marks
    group: the ranks of the pipeline
    data_group: ranks that have the same stages and other batches: gradients are averaged over them
    recompute: whether activations are computed again in backward instead of kept

    >>> td.distributed.init_process_group()
    >>> model = td.nn.Linear(2, 1)
    >>> pipe = td.distributed.pipeline.Pipeline(lambda x: model(x).square().mean(), (td.ones(4, 2),), micro_batches=2)
    >>> loss = pipe.step(td.ones(4, 2))
    >>> [tuple(p.grad.shape) for p in pipe.parameters()]
    [(1, 2), (1,)]
    >>> td.distributed.destroy_process_group()
    """

    def __init__(self, fn, args, *, micro_batches: int, schedule: str | Schedule = "1f1b", stages=None,
                 group: ProcessGroup | None = None, data_group: ProcessGroup | None = None, recompute: bool = False):  # fmt: skip
        self._begin(group, data_group, args, micro_batches)
        modules = list(stages) if isinstance(stages, (list, tuple)) else []
        traced = trace_marked(fn, self.micro_batch(args), modules)
        found, count = assign(traced.graph, set(traced.weights), None if modules else stages)
        size = self.group.size()
        self.schedule = schedule_of(schedule, size, count, micro_batches)
        joints = cut(traced.graph, traced.weights, found, count)
        rank_of = self.schedule.rank_of
        made = [whole_stage(j, rank_of(j.number), rank_of(j.number) == self.rank, recompute) for j in joints]
        self._ready(traced, made, [Place((r,)) for r in range(size)])

    @classmethod
    def planned(
        cls, traced: Traced, args, stages: list[Stage], schedule: Schedule, group: ProcessGroup, mesh
    ) -> Pipeline:
        """A pipeline whose stages are divided among several ranks each. mesh: that of this rank's stages"""
        pipe = cls.__new__(cls)
        pipe._begin(group, None, args, schedule.micro_batches)
        pipe.schedule, pipe._mesh = schedule, mesh
        pipe._ready(traced, stages, [stages[row].place for row in range(schedule.ranks)])
        return pipe

    def _begin(self, group, data_group, args, micro_batches: int):
        self.group = group_of(group, "pipeline")
        if self.group is None:
            raise DistributedError("pipeline", "this rank is not in the group")
        self.rank, self.data_group, self.micro_batches = self.group.rank(), data_group, micro_batches
        self._mesh = None
        self._shapes = [(t.dtype, tuple(t.shape)) for t in map(asarray, args)]
        self._rows = rows_of("pipeline", args, micro_batches)

    def _ready(self, traced: Traced, stages: list[Stage], places: list[Place]):
        self.traced, self.stages, self.places = traced, stages, places
        verify(self.schedule)
        graph, count = traced.graph, traced.arguments
        self.loss = graph.outputs[0]
        self.written = dict(zip(graph.outputs[1:], traced.written, strict=True))
        self._arguments = {v: i for i, v in enumerate(graph.inputs[:count])}
        self._tensors = dict(zip(graph.inputs[count:], traced.tensors, strict=False))
        self._random = {v: i for i, v in enumerate(graph.inputs[count + len(traced.tensors) :])}
        self.producer = {v: s.number for s in stages for v in s.outputs}
        self.readers = {v: [s.number for s in stages if v in s.inputs] for s in stages for v in s.outputs}
        self.row = next(r for r, place in enumerate(places) if self.rank in place.ranks)
        self.messages = [messages_of(self, r) for r in range(self.group.size())]
        self.sent = 0  # bytes that this rank sent to others in the last step

    # -- what is where

    @property
    def my_stages(self) -> list[Stage]:
        return [self.stages[s] for s in self.schedule.stages_of(self.row)]

    def parameters(self) -> list:
        """Those of this rank's stages: what an optimiser here updates."""
        return [self._tensors[v] for v in self._weights_of(self.row)]

    def replace(self, tensors: dict):
        """Takes other tensors for inputs of the graph: sharded parameters."""
        self._tensors.update(tensors)

    def _weights_of(self, row: int) -> list:
        return list(dict.fromkeys(v for s in self.schedule.stages_of(row) for v in self.stages[s].weights))

    def given(self, v: Value, micro: int, run: Step):
        """What an input of the whole graph is; None for values that stages compute."""
        if v in self._arguments:
            return run.micro[micro][self._arguments[v]]
        if v in self._tensors:
            return self._tensors[v]
        if v in self._random:
            return asarray(self.traced.numbers(micro, run.state)[self._random[v]], dtype=v.dtype)
        return None

    def explain(self) -> str:
        """Each stage: where it is, how much it computes, its parameters, and the bytes that a micro-batch moves."""
        lines = [f"pipeline: {len(self.stages)} stages on {self.schedule.ranks} ranks, {self.schedule.name}"]
        for s in self.stages:
            there = sum(self._tensors[v].numel() for v in s.weights)
            sent = sum(_bytes("F", v, s, self.stages[r]) for v in s.outputs for r in self.readers[v])
            back = sum(_bytes("G", v, s, self.stages[self.producer[v]]) for v in s.gradients_out)
            lines.append(
                f"  stage {s.number} on {_ranks(s.place)}: {len(s.joint.graph.nodes)} operators, "
                f"{there} parameters, sends {sent} bytes on and {back} back"
            )
        return "\n".join(lines)

    # -- a step

    def step(self, *args):
        """The mean loss of a batch, on every rank. Adds its gradients to `.grad` of this rank's parameters."""
        run = Step(self, self._divide(args))
        with no_grad():
            for action in self.schedule.actions[self.row]:
                run.do(action)
            run.finish()
            self._add_gradients(run)
            self.sent = run.sent
            return self._mean_loss(run.losses)

    def evaluate(self, *args):
        """The mean loss of a batch, on every rank, without gradients."""
        run = Step(self, self._divide(args), trains=False)
        with no_grad():
            for action in self.schedule.actions[self.row]:
                if action.kind == "F":
                    run.do(action)
            run.finish()
            return self._mean_loss(run.losses)

    def micro_batch(self, args) -> list:
        return micro_batch(args, self._rows, self.micro_batches)

    def _divide(self, args) -> list[list]:
        tensors = [asarray(a) for a in args]
        given = [(t.dtype, tuple(t.shape)) for t in tensors]
        if given != self._shapes:
            show = lambda some: ", ".join(f"{dtype}{list(shape)}" for dtype, shape in some)
            raise ShapeError(
                "pipeline", f"step was given {show(given)}; the pipeline was made for {show(self._shapes)}",
                fix="leave out the last, smaller batch (drop_last=True), or make a pipeline for it",
            )  # fmt: skip
        return [micro_batch(tensors, self._rows, self.micro_batches, m) for m in range(self.micro_batches)]

    def _mean_loss(self, losses: list):
        total = losses[0] if losses else zeros((), dtype=self.loss.dtype)
        for loss in losses[1:]:
            total = total + loss
        last = self.stages[-1].place.ranks[0]
        return F.broadcast(total / self.micro_batches, self.group.token, self.group.size(), last)

    def _add_gradients(self, run: Step):
        gradients = run.gradients
        for v in dict.fromkeys(v for s in self.stages for v in s.weights):
            holders = [r for r in range(len(self.places)) if v in self._weights_of(r)]
            if len(holders) > 1 and self.row in holders:
                gradients[v] = self._sum_tied(v, holders, gradients[v], run)
        mine = self._weights_of(self.row)
        if self.data_group is not None:
            averaged = all_reduce_coalesced([gradients[v] for v in mine], "avg", self.data_group)
            gradients = dict(zip(mine, averaged, strict=True))
        for v in mine:
            p = self._tensors[v]
            g = gradients[v] if self._mesh is None else self._sharded(v, gradients[v])
            p.grad = g if p.grad is None else p.grad + g

    def _sharded(self, v: Value, gradient):
        lies = next(s.weights[v] for s in self.my_stages if v in s.weights)
        return from_local(gradient, self._mesh, lies, shape=tuple(v.shape))

    def _sum_tied(self, v: Value, holders: list[int], mine, run: Step):
        """A weight that stages of several places read: all of them get the sum, added in the order of places."""
        lies = lambda row: next(
            self.stages[s].weights[v] for s in self.schedule.stages_of(row) if v in self.stages[s].weights
        )
        route = lambda a, b: blocks(tuple(v.shape), self.places[a], lies(a), self.places[b], lies(b))
        box = self.places[self.row].box(self.rank, v.shape, lies(self.row))
        sends, group = [], self.group
        for other in holders:
            for block in route(self.row, other) if other != self.row else ():
                if block.source == self.rank:
                    part = F.contiguous(mine[block.inside(box)] if block.box != box else mine)
                    run.sent += block.elements * v.dtype.itemsize
                    sends.append(isend(part, group.ranks[block.target], group))
        total = None
        for other in holders:
            part = mine
            if other != self.row:
                part = empty(tuple(n for _, n in box), dtype=v.dtype)
                for block in route(other, self.row):
                    if block.target == self.rank:
                        room = empty(tuple(n for _, n in block.box), dtype=v.dtype)
                        irecv(room, group.ranks[block.source], group).wait()
                        part[block.inside(box)].copy_(room)
            total = part if total is None else total + part
        for work in sends:
            work.wait()
        return total


def _bytes(kind: str, v: Value, source: Stage, target: Stage) -> int:
    return sum(b.elements for b in route(kind, v, source, target) if b.source != b.target) * v.dtype.itemsize


def _ranks(place: Place) -> str:
    return f"rank {place.ranks[0]}" if len(place.ranks) == 1 else f"ranks {list(place.ranks)}"


def rows_of(op: str, args, micro_batches: int) -> int:
    """How many rows a batch has, if it can be divided so."""
    shape = tuple(asarray(args[0]).shape) if len(args) else ()
    if not shape or not isinstance(micro_batches, int) or micro_batches < 1 or shape[0] % micro_batches:
        raise ValueRangeError(
            op, f"a batch of shape {shape} cannot be divided into {micro_batches!r} equal micro-batches"
        )
    return shape[0]


def micro_batch(args, rows: int, count: int, number: int = 0) -> list:
    """A micro-batch's rows; a tensor that is no part of the batch goes whole."""
    n = rows // count
    tensors = map(asarray, args)
    return [t[number * n : (number + 1) * n] if t.ndim and t.shape[0] == rows and count > 1 else t for t in tensors]
