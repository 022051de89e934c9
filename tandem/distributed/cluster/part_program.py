"""A registered part of a program, and a step of it, at a task."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tandem import _runtime
from tandem.distributed.cluster.parts import ReadPart
from tandem.errors import CancelledError, ValueRangeError
from tandem.session.flow_groups import variables_read
from tandem.session.flow_program import FlowProgram
from tandem.session.program import position, written_by
from tandem.session.unknown import show_shape

if TYPE_CHECKING:
    from tandem.distributed.cluster.task import Task


class Step:
    """A step under way at this task: what Sends and Receives of its program are given."""

    def __init__(self, task: Task, number: str, messages):
        self.task, self.number, self.messages = task, number, messages
        self.cancellation = _runtime.Cancellation()
        self.reason: BaseException | None = None
        self.over = threading.Event()

    def send(self, destination: str, edge: int, iteration: int, tensors):
        self.task.deliver(self.number, destination, edge, iteration, tensors)

    def receive(self, edge: int, iteration: int):
        return self.messages.take((edge, iteration), self.cancellation)

    def abort(self, reason: BaseException):
        if self.reason is None:
            self.reason = reason
        self.messages.abort(reason)
        self.cancellation.cancel()


class PartProgram(FlowProgram):
    """A registered part, which the tagged executor runs."""

    def __init__(self, task: Task, part: ReadPart):
        self.task = task
        given = {v.node for v in part.fed}
        self.known_frames, self.ranks = part.frames, part.ranks
        nodes = [n for n in part.graph.nodes if n not in given]
        super().__init__(part.graph, part.fetched, part.fed, nodes, soft_placement=part.soft)
        self._needed = {v for v in self.variables if self._is_read_first(v)}

    def _is_read_first(self, v) -> bool:
        """Whether a run reads a variable before it writes it."""
        writes = [position(n) for n in self.steps if v in written_by(n)]
        return any(v in variables_read(n) and all(position(n) <= w for w in writes) for n in self.steps)

    def run(self, step: Step, fed: list, seed: int) -> list:
        cells = [self.task.cell(v.node.name) for v in self.variables]
        for v, cell in zip(self.variables, cells, strict=True):
            self._check(v, cell.tensor)
        held = [v.node.op.tensor for v in self.held]
        outcome = self._flow.run(
            [*fed, *held], cells, self.task.lock, seed, _runtime.num_threads(), step.cancellation, step
        )
        if outcome.error is not None:
            step.messages.abort(outcome.error)
            raise self._located(outcome)
        if outcome.failed_node == -2:
            raise step.reason or CancelledError("run", "the step was aborted")
        return [self._live(v, value) for v, value in zip(self.fetches, outcome.results, strict=True)]

    def _check(self, v, value):
        if value is None:
            if v in self._needed:
                raise ValueRangeError(
                    "run", f"variable {v.name!r}, built at {v.node.source}, has no value on {self.task.name}",
                    fix="run td.global_variables_initializer() first, or restore a checkpoint", source=v.node.source,
                )  # fmt: skip
        elif value.dtype is not v.dtype or tuple(value.shape) != tuple(v.shape):
            raise ValueRangeError(
                "run",
                f"variable {v.name!r} is {v.dtype} {show_shape(v.type.shape)} here, and on {self.task.name} there is another of "
                f"this name, {value.dtype} {tuple(value.shape)}",
                fix="variables of a cluster are shared by name: give them different names, or cluster.reset()",
                source=v.node.source,
            )
