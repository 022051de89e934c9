"""Training steps of a pipeline: each rank does its part of the schedule, and tensors go from rank to rank."""

from __future__ import annotations

import contextlib
import threading

import tandem.ops as F
from tandem import _runtime
from tandem.autograd.modes import no_grad
from tandem.constructors import asarray, empty, zeros
from tandem.control.body import RANDOM, spec, take_down
from tandem.distributed.collectives import irecv, isend
from tandem.distributed.functional import all_reduce_coalesced
from tandem.distributed.group import ProcessGroup, group_of
from tandem.distributed.pipeline.cut import Stage, cut
from tandem.distributed.pipeline.schedule import Action, Schedule, schedule_of
from tandem.distributed.pipeline.verify import verify
from tandem.distributed.pipeline.work import size_of
from tandem.errors import DistributedError, ShapeError, UnsupportedError, ValueRangeError
from tandem.export.trace import graph_of

_cutting = threading.local()  # on: whether marks count in this thread
AHEAD = 2  # messages that are received before they are needed


def stage(x):
    """Marks in a model where a stage of a pipeline ends: x is what the next stage begins with. Without a pipeline it is x itself.

    >>> td.distributed.stage(td.ones(2))
    tensor([1., 1.])
    """
    return F.stage_boundary(x) if getattr(_cutting, "on", False) else x


@contextlib.contextmanager
def _marks_count():
    _cutting.on = True
    try:
        yield
    finally:
        _cutting.on = False


class Pipeline:
    """A loss function whose stages are on different ranks. Every rank makes it, with equal weights, and calls `step`.

    fn: gives the loss of a batch, the mean over its rows; it runs once, on tensors without values
    args: tensors of the shapes and types of a batch; those with as many rows as the first are divided into micro-batches
    micro_batches: into how many
    schedule: "gpipe", "1f1b", "zero_bubble", "interleaved", or a Schedule
    stages: into how many stages of equal work to cut; None for those that td.distributed.stage marks
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

    def __init__(self, fn, args, *, micro_batches: int, schedule: str | Schedule = "1f1b", stages: int | None = None,
                 group: ProcessGroup | None = None, data_group: ProcessGroup | None = None, recompute: bool = False):  # fmt: skip
        self.group = group_of(group, "pipeline")
        if self.group is None:
            raise DistributedError("pipeline", "this rank is not in the group")
        self.data_group = data_group
        self.micro_batches = micro_batches
        self._shapes = [(t.dtype, tuple(t.shape)) for t in map(asarray, args)]
        micro = [_slice(t, 0, self._rows(), micro_batches) for t in map(asarray, args)]
        self._trace(fn, micro, stages, recompute)
        self.schedule = schedule_of(schedule, self.group.size(), len(self.stages), micro_batches)
        verify(self.schedule)
        self.rank = self.group.rank()
        self._messages = [_messages(self, r) for r in range(self.group.size())]

    def _rows(self) -> int:
        shape = self._shapes[0][1] if self._shapes else ()
        if (
            not shape
            or not isinstance(self.micro_batches, int)
            or self.micro_batches < 1
            or shape[0] % self.micro_batches
        ):
            raise ValueRangeError(
                "pipeline",
                f"a batch of shape {shape} cannot be divided into {self.micro_batches!r} equal micro-batches",
            )
        return shape[0]

    def _trace(self, fn, args: list, stages: int | None, recompute: bool):
        state = _runtime.default_generator().get_state()
        try:
            with _marks_count():
                taken = take_down("pipeline", fn, [spec(t, False) for t in args]).taken
        finally:
            _runtime.default_generator().set_state(state)
        arguments = [(t.dtype, t.shape) for t in args]
        graph = graph_of(taken, arguments, [()] * len(args), gradients=True, random=True)
        if len(graph.outputs) != 1 or graph.outputs[0].shape or not graph.outputs[0].dtype.is_inexact:
            found = ", ".join(repr(v.type) for v in graph.outputs)
            raise ShapeError("pipeline", f"the function gives {found}; it must give the loss, one number")
        if graph.mutations:
            raise UnsupportedError("pipeline", "the function writes into tensors (running statistics, caches)")
        count = len(args)
        self._tensors = dict(zip(graph.inputs[count:], taken.consts, strict=False))
        self._arguments = {v: i for i, v in enumerate(graph.inputs[:count])}
        first = next((value for kind, value in taken.numbers if kind == "offset"), 0)
        kinds = [(kind, value - first) for kind, value in taken.numbers if kind in RANDOM]
        self._random = dict(zip(graph.inputs[count + len(taken.consts) :], kinds, strict=True))
        self._draws = taken.draws
        weights = [v for v, t in self._tensors.items() if t.requires_grad]
        if not weights:
            raise ValueRangeError("pipeline", "no parameter that requires a gradient takes part in the loss")
        self.stages: list[Stage] = cut(graph, weights, stages, recompute)
        self._producer = {v: s.number for s in self.stages for v in s.outputs}
        self._readers = {v: [s.number for s in self.stages if v in s.inputs] for s in self.stages for v in s.outputs}

    # -- what is where

    @property
    def my_stages(self) -> list[Stage]:
        return [self.stages[s] for s in self.schedule.stages_of(self.rank)]

    def parameters(self) -> list:
        """Those of this rank's stages: what an optimiser here updates."""
        return [self._tensors[v] for v in self._weights_of(self.rank)]

    def _weights_of(self, rank: int) -> list:
        return list(dict.fromkeys(v for s in self.schedule.stages_of(rank) for v in self.stages[s].weights))

    def explain(self) -> str:
        """Each stage: where it is, how much it computes, its parameters, and the bytes that a micro-batch moves."""
        lines = [f"pipeline: {len(self.stages)} stages on {self.schedule.ranks} ranks, {self.schedule.name}"]
        for s in self.stages:
            there = sum(self._tensors[v].numel() for v in s.weights)
            sent = sum(size_of(v) * len(self._readers[v]) for v in s.outputs)
            back = sum(map(size_of, s.gradients_out))
            lines.append(
                f"  stage {s.number} on rank {self.schedule.rank_of(s.number)}: {len(s.forward.nodes)} operators, "
                f"{there} parameters, sends {sent} bytes on and {back} back"
            )
        return "\n".join(lines)

    # -- a step

    def step(self, *args):
        """The mean loss of a batch, on every rank. Adds its gradients to `.grad` of this rank's parameters."""
        run = _Step(self, self._divide(args))
        with no_grad():
            for action in self.schedule.actions[self.rank]:
                run.do(action)
            run.finish()
            self._add_gradients(run.gradients)
            return self._mean_loss(run.losses)

    def evaluate(self, *args):
        """The mean loss of a batch, on every rank, without gradients."""
        run = _Step(self, self._divide(args), trains=False)
        with no_grad():
            for action in self.schedule.actions[self.rank]:
                if action.kind == "F":
                    run.do(action)
            run.finish()
            return self._mean_loss(run.losses)

    def _divide(self, args) -> list[list]:
        tensors = [asarray(a) for a in args]
        given = [(t.dtype, tuple(t.shape)) for t in tensors]
        if given != self._shapes:
            show = lambda some: ", ".join(f"{dtype}{list(shape)}" for dtype, shape in some)
            raise ShapeError(
                "pipeline", f"step was given {show(given)}; the pipeline was made for {show(self._shapes)}",
                fix="leave out the last, smaller batch (drop_last=True), or make a pipeline for it",
            )  # fmt: skip
        n = self.micro_batches
        return [[_slice(t, m, self._rows(), n) for t in tensors] for m in range(n)]

    def _mean_loss(self, losses: list):
        total = losses[0] if losses else zeros((), dtype=self.stages[-1].outputs[-1].dtype)
        for loss in losses[1:]:
            total = total + loss
        last = self.schedule.rank_of(len(self.stages) - 1)
        return F.broadcast(total / self.micro_batches, self.group.token, self.group.size(), last)

    def _add_gradients(self, gradients: dict):
        for v in dict.fromkeys(v for s in self.stages for v in s.weights):
            holders = [r for r in range(self.group.size()) if v in self._weights_of(r)]
            if len(holders) > 1 and self.rank in holders:
                self._sum_tied(v, holders, gradients)
        mine = self._weights_of(self.rank)
        if self.data_group is not None:
            averaged = all_reduce_coalesced([gradients[v] for v in mine], "avg", self.data_group)
            gradients = dict(zip(mine, averaged, strict=True))
        for v in mine:
            p = self._tensors[v]
            p.grad = gradients[v] if p.grad is None else p.grad + gradients[v]

    def _sum_tied(self, v, holders: list[int], gradients: dict):
        """A weight that stages of several ranks read: all of them get the sum, added in the order of ranks."""
        mine = gradients[v]
        sends = [isend(mine, self.group.ranks[r], self.group) for r in holders if r != self.rank]
        total = None
        for r in holders:
            part = mine
            if r != self.rank:
                part = empty(v.shape, dtype=v.dtype)
                irecv(part, self.group.ranks[r], self.group).wait()
            total = part if total is None else total + part
        for work in sends:
            work.wait()
        gradients[v] = total


class _Step:
    """What a rank holds during a step."""

    def __init__(self, pipe: Pipeline, micro: list[list], trains: bool = True):
        self.pipe, self.micro, self.trains = pipe, micro, trains
        self.values: dict = {}  # (value, micro-batch) -> tensor that this rank computed or received
        self.saved: dict = {}  # (stage, micro-batch) -> what backward needs
        self.gradients: dict = {}
        self.losses: list = []
        self.sends: list = []
        self.received = [0] * pipe.group.size()  # messages asked for, of each rank
        self.under_way: dict = {}
        seed, self.offset = _runtime.default_generator().get_state()
        self.seed = seed
        _runtime.default_generator().set_state((seed, self.offset + pipe._draws * len(micro)))
        self.messages = [
            [m for m in _to(pipe._messages[r], pipe.rank) if trains or m[0] == "F"] for r in range(pipe.group.size())
        ]

    def do(self, action: Action):
        getattr(self, f"_do_{action.kind}")(self.pipe.stages[action.stage], action.micro)

    def finish(self):
        for work in self.sends:
            work.wait()

    def _do_F(self, stage: Stage, micro: int):
        results = stage.forward.run(*(self._input(v, stage, micro) for v in stage.inputs))
        outputs, self.saved[stage.number, micro] = results[: len(stage.outputs)], results[len(stage.outputs) :]
        if not self.trains:
            del self.saved[stage.number, micro]
        for v, t in zip(stage.outputs, outputs, strict=True):
            readers = self.pipe._readers[v]
            if not readers:
                self.losses.append(t)
            for reader in readers:
                self._pass_on("F", v, reader, micro, t, reader)

    def _do_B(self, stage: Stage, micro: int):
        self._backward(
            stage, micro, stage.backward.run(*self._incoming(stage, micro), *self.saved.pop((stage.number, micro)))
        )

    def _do_I(self, stage: Stage, micro: int):
        given = [*self._incoming(stage, micro), *self.saved[stage.number, micro]]
        count = len(stage.gradients_out)
        results = stage.for_inputs.run(*given) if stage.for_inputs.outputs else []
        self.saved[stage.number, micro] = [*given, *results[count:]]
        self._send_gradients(stage, micro, results[:count])

    def _do_W(self, stage: Stage, micro: int):
        self._add(stage, stage.for_weights.run(*self.saved.pop((stage.number, micro))))

    def _backward(self, stage: Stage, micro: int, results: list):
        count = len(stage.gradients_out)
        self._send_gradients(stage, micro, results[:count])
        self._add(stage, results[count:])

    def _send_gradients(self, stage: Stage, micro: int, gradients: list):
        for v, g in zip(stage.gradients_out, gradients, strict=True):
            self._pass_on("G", v, stage.number, micro, g, self.pipe._producer[v])

    def _add(self, stage: Stage, gradients: list):
        for v, g in zip(stage.weights, gradients, strict=True):
            before = self.gradients.get(v)
            self.gradients[v] = g if before is None else before + g

    def _input(self, v, stage: Stage, micro: int):
        pipe = self.pipe
        if v in pipe._arguments:
            return self.micro[micro][pipe._arguments[v]]
        if v in pipe._tensors:
            return pipe._tensors[v]
        if v in pipe._random:
            kind, delta = pipe._random[v]
            return asarray(self.seed if kind == "seed" else self.offset + micro * pipe._draws + delta, dtype=v.dtype)
        return self._take("F", v, stage.number, micro, pipe._producer[v])

    def _incoming(self, stage: Stage, micro: int) -> list:
        found = []
        for v in stage.gradients_in:
            readers = [r for r in self.pipe._readers[v] if v in self.pipe.stages[r].gradients_out]
            parts = [self._take("G", v, r, micro, r) for r in readers]
            if not readers:  # the loss
                parts = [asarray(1.0 / len(self.micro), dtype=v.dtype)]
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            found.append(total)
        return found

    # -- messages: (kind, value, reading stage, micro-batch)

    def _pass_on(self, kind: str, v, reader: int, micro: int, tensor, to_stage: int):
        to = self.pipe.schedule.rank_of(to_stage)
        if to == self.pipe.rank:
            self.values[kind, v, reader, micro] = tensor
        else:
            group = self.pipe.group
            self.sends.append(isend(F.contiguous(tensor), group.ranks[to], group))

    def _take(self, kind: str, v, reader: int, micro: int, of_stage: int):
        key = kind, v, reader, micro
        source = self.pipe.schedule.rank_of(of_stage)
        if source == self.pipe.rank:
            return self.values.pop(key)
        messages = self.messages[source]
        wanted = messages.index(key) + 1
        group = self.pipe.group
        while self.received[source] < min(wanted + AHEAD, len(messages)):
            message = messages[self.received[source]]
            room = empty(message[1].shape, dtype=message[1].dtype)
            self.under_way[message] = room, irecv(room, group.ranks[source], group)
            self.received[source] += 1
        room, work = self.under_way.pop(key)
        work.wait()
        return room


def _messages(pipe: Pipeline, rank: int) -> list[tuple]:
    """What a rank sends in a step, in order: (to, message)."""
    found = []
    rank_of = pipe.schedule.rank_of
    for kind, s, micro in pipe.schedule.actions[rank]:
        stage = pipe.stages[s]
        if kind == "F":
            found += [(rank_of(r), ("F", v, r, micro)) for v in stage.outputs for r in pipe._readers[v]]
        elif kind in "BI":
            found += [(rank_of(pipe._producer[v]), ("G", v, s, micro)) for v in stage.gradients_out]
    return [(to, message) for to, message in found if to != rank]


def _to(messages: list[tuple], rank: int) -> list[tuple]:
    return [message for to, message in messages if to == rank]


def _slice(t, micro: int, rows: int, count: int):
    """A micro-batch's rows; a tensor that is no part of the batch goes whole."""
    if not t.ndim or t.shape[0] != rows:
        return t
    n = rows // count
    return t[micro * n : (micro + 1) * n]
