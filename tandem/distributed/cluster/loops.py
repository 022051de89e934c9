"""Loops and branches whose nodes are on several tasks.

Note [Loops over tasks]
A branch needs nothing: what is sent of one that is not taken is a dead message, and what receives it is dead (Note [Dead values
between tasks] in src/executor/flow.h).

A loop goes round on every task that has nodes of it. Each such task gets a driver: a loop variable without meaning, whose Merge
fires once for each iteration, and a Switch by the loop's predicate, which comes from the task that computes it. What the task
receives inside of the loop waits for the Merge, so that it is received once for each iteration, with the iteration in its key. The
driver is entered when the loop is: what it starts with waits for what the loop's first variable starts with, dead if that is.
Frames have the same numbers on all tasks. Values that enter as constants are entered by each task that reads them.
"""

from __future__ import annotations

from typing import NamedTuple

from tandem import dtypes
from tandem.distributed.cluster.place import is_anywhere
from tandem.errors import UnsupportedError
from tandem.graph.ir import Type, Value, revise
from tandem.session.flow_check import ANYWHERE, Frames
from tandem.session.flow_groups import Grouping
from tandem.session.graph import StepNode, outside_graphs
from tandem.session.nodes import Fed, Identity
from tandem.session.primitives import Enter, Exit, LoopCond, Merge, NextIteration, Switch
from tandem.session.program import is_variable, written_by
from tandem.tensors.constructors import tensor


def place_loops(nodes: list[StepNode], place: dict) -> None:
    """The nodes that a loop variable is made of are on one task, that of its Merge; an Exit is where its value is."""
    for node in nodes:
        if isinstance(node.op, Merge):
            for v in node.inputs:
                if isinstance(v.node.op, (Enter, NextIteration)):
                    place[v.node] = place[node]
    for node in nodes:
        if isinstance(node.op, Exit) and node.inputs[0].node in place:
            place[node] = place[node.inputs[0].node]


class Driver(NamedTuple):
    merge: StepNode
    nodes: list[StepNode]


class Loops:
    """Of a cut: frames, conditions, drivers. `nodes` are those of the run, with what was added."""

    def __init__(self, cut, nodes: list[StepNode], fetches: list, make):
        self.cut, self.place, self.make = cut, cut.place, make
        self.frames = Frames(nodes, cut.fed_set, fetches)
        self.grouping = Grouping(nodes, self.frames, cut.fed_set, set())
        self.frame_of: dict[StepNode, int | None] = dict(self.frames.frame_of)
        self.nodes = list(nodes)
        self.stand_in: dict[tuple[StepNode, Value], Value] = {}
        self.constants: list[StepNode] = []
        self._copies: dict[tuple[StepNode, str], StepNode] = {}
        self._drivers: dict[tuple[str, int], Driver] = {}
        self._conditions: dict[frozenset, int] = {}
        self._entered: dict[StepNode, int] = {}  # of Enters that were added
        self._written = {v for n in nodes for v in written_by(n)}
        for node in nodes:
            self._copy_constants(node)
        for task, frame in self._spanned():
            self._drive(task, frame)

    def names(self) -> list[list]:
        """(name, frame around) of each frame, as all tasks number them."""
        return [[n, p] for n, p in zip(self.frames.names[1:], self.frames.parents[1:], strict=True)]

    def frame(self, x: Value | StepNode) -> int | None:
        """The frame that a value, or the end of a node, belongs to."""
        node = x.node if isinstance(x, Value) else x
        found = self.frame_of.get(node, ANYWHERE)
        if isinstance(node.op, Enter):
            return self.frames.entered(node) if node in self.frames.frame_of else self._entered[node]
        return self.frames.parents[found] if isinstance(node.op, Exit) else found

    def merge(self, task: str, frame: int) -> StepNode:
        return self._drivers[task, frame].merge

    def condition(self, v: Value) -> int:
        """A number for when a value is live; 0: in every iteration."""
        found = self.grouping.condition(v)
        if all(kind == "loop" for kind, _ in found):
            return 0
        return self._conditions.setdefault(found, len(self._conditions) + 1)

    def check_read(self, node: StepNode, v: Value):
        if self.frame_of.get(node) and v in self._written:
            raise UnsupportedError(
                "run",
                f"{node.name!r} reads variable {v.name!r} of {self.place[v.node]} in a loop, and the run writes it",
                fix="read it where it is: with td.colocate_with(v): now = v.value()",
                source=node.source,
            )

    # -- constants of loops

    def _copy_constants(self, node: StepNode):
        for v in node.inputs:
            source = v.node
            if not isinstance(source.op, Enter) or not source.op.is_constant or v in self.cut.fed_set:
                continue
            here = self.place[node]
            if self.place[source] != here:
                self.stand_in[node, v] = self._copy(source, here).outputs[0]

    def _copy(self, enter: StepNode, task: str) -> StepNode:
        found = self._copies.get((enter, task))
        if found is None:
            op = Enter(enter.op.frame_name, True, enter.op.parallel_iterations)
            types = (enter.outputs[0].type,)
            name = f"{enter.name}/on_{len(self._copies)}"
            found = self.make(op, enter.inputs, types, name, enter.id + 0.25, enter.source, enter.control)
            self._copies[enter, task] = found
            self._add(found, task, self.frame_of[enter])
            self._entered[found] = self.frames.entered(enter)
            self._copy_constants(found)
        return found

    def _add(self, node: StepNode, task: str, frame: int | None) -> StepNode:
        self.place[node] = task
        self.frame_of[node] = frame
        self.nodes.append(node)
        return node

    # -- drivers

    def _spanned(self) -> list[tuple[str, int]]:
        """Tasks and the frames that they have a part in, of frames that several tasks do; outer frames first."""
        tasks: dict[int, set] = {f: set() for f in range(1, len(self.frames.parents))}
        for node in self.nodes:
            frame = self.frame_of.get(node) or 0
            while frame > 0:
                tasks[frame].add(self.place[node])
                frame = self.frames.parents[frame]
        found = [(task, frame) for frame, ts in tasks.items() if len(ts) > 1 for task in sorted(ts)]
        return sorted(found, key=lambda pair: self._depth(pair[1]))

    def _depth(self, frame: int) -> int:
        return 0 if frame <= 0 else 1 + self._depth(self.frames.parents[frame])

    def _drive(self, task: str, frame: int):
        around = self.frames.parents[frame]
        enters = [n for n in self.frames.nodes if isinstance(n.op, Enter) and self.frames.entered(n) == frame]
        first = min(enters, key=lambda n: n.id)
        variable = next(n for n in enters if not n.op.is_constant)
        predicate = next(n for n in self.frames.nodes if isinstance(n.op, LoopCond) and self.frame_of[n] == frame)
        begins = variable.inputs[0].node.id
        at = first.id - 0.5 if begins < first.id else begins + 0.5
        name, source = f"{variable.op.frame_name}/driver_{len(self._drivers)}", first.source
        number = Type(dtypes.int32, ())
        made: list[StepNode] = []

        def add(op, inputs, outputs: int, label: str, inside: int | None, late=False, control=(), kind=number):
            where = (predicate.id + 0.5 if late else at) + len(made) * 2.0**-12
            node = self.make(op, inputs, (kind,) * outputs, f"{name}/{label}", where, source, control)
            made.append(node)
            return self._add(node, task, inside)

        with outside_graphs():
            zero = self.make(Fed("constant", tensor(0, dtype=dtypes.int32)), (), (number,), f"{name}/zero", at, source)
        self.constants.append(zero)
        waited = self._entry(variable, around, name, at)
        if not waited and around > 0:
            waited = [self.merge(task, around)]
        start = add(Identity(), (zero.outputs[0],), 1, "start", around if waited else ANYWHERE, control=waited)
        op = Enter(variable.op.frame_name, False, variable.op.parallel_iterations)
        enter = add(op, (start.outputs[0],), 1, "enter", around)
        self._entered[enter] = frame
        merge = add(Merge(False), (enter.outputs[0],), 2, "merge", frame)
        going = add(LoopCond(), (predicate.outputs[0],), 1, "going", frame, late=True, kind=predicate.outputs[0].type)
        switch = add(Switch(), (merge.outputs[0], going.outputs[0]), 2, "switch", frame, late=True)
        following = add(NextIteration(), (switch.outputs[1],), 1, "next", frame, late=True)
        add(Exit(), (switch.outputs[0],), 1, "exit", frame, late=True)
        revise(merge, "inputs", (*merge.inputs, following.outputs[0]))
        self._drivers[task, frame] = Driver(merge, made)

    def _entry(self, enter: StepNode, around: int, name: str, at: float) -> list[StepNode]:
        """What a driver waits for: the value that the loop is entered with is there, and live."""
        v = enter.inputs[0]
        if v in self.cut.fed_set or is_anywhere(v.node) or is_variable(v):
            return [n for n in enter.control if not is_anywhere(n)]
        key = enter, ""
        found = self._copies.get(key)
        if found is None:
            label = f"{enter.name}/entry"
            found = self.make(Identity(), (v,), (v.type,), label, at - 0.125, enter.source, enter.control)
            self._copies[key] = self._add(found, self.place[enter], self.frames.frame_of[enter])
        return [found]
