"""FlowProgram: what fetches that involve branches and loops made of primitives compile to; the tagged executor runs it.

Each group of ordinary nodes (flow_groups.py) becomes an operator function and so has a plan for each signature; primitives, Python
functions and writes of variables stay nodes. The executor is src/executor.
"""

from __future__ import annotations

from tandem import _runtime
from tandem.errors import CancelledError, TandemError, ValueRangeError
from tandem.graph.ir import Value
from tandem.ops.define import Role, make_function
from tandem.program.report import Report
from tandem.session.flow_check import Frames, refuse
from tandem.session.flow_groups import Grouping, is_costly, variables_read
from tandem.session.graph import Graph, StepNode, SymbolicTensor
from tandem.session.nodes import Fed, Group, Print
from tandem.session.placing import Places, run_device
from tandem.session.primitives import Enter, Exit, LoopCond, Merge, NextIteration, Primitive, Switch
from tandem.session.program import (
    PARAMETERS,
    Trace,
    draws_from_the_run,
    host_task,
    is_host,
    is_variable,
    needed,
    passed_through,
    position,
    print_line,
    written_by,
)
from tandem.session.unknown import show_shape

SOURCE, COMPUTE, SWITCH, MERGE, ENTER, EXIT, NEXT_ITERATION, LOOP_COND, DONE, FETCH = (
    kind.value for kind in _runtime.FlowKind
)
_KIND = {
    Switch: SWITCH,
    Merge: MERGE,
    Enter: ENTER,
    Exit: EXIT,
    NextIteration: NEXT_ITERATION,
    LoopCond: LOOP_COND,
}


class Unit:
    """A node of the executor's graph."""

    def __init__(
        self, kind: int, nodes=(), task=None, num_outputs: int = 0, frame: int = -1, constant=False, parallel=10
    ):
        self.kind = kind
        self.nodes = list(nodes)  # what it stands for, for errors
        self.task = task
        self.inputs: list[tuple[int, int]] = []
        self.controls: list[int] = []
        self.orders: list[int] = []
        self.num_outputs = num_outputs
        self.frame = frame
        self.constant = constant
        self.parallel = parallel
        self.always = False


def _printing_task(node: StepNode):
    def show(operands, cancellation):
        print_line(node, operands[1:])
        return operands[:1]

    return _runtime.python_task(show, False)


class FlowProgram:
    """The part of a graph that some fetches need, as a graph of the tagged executor."""

    compiled = None  # it is many programs, none of them the graph
    known_frames: list = []  # (name, frame around) of loops that have numbers already
    ranks: dict = {}  # of nodes of a part: see Note [Groups]

    def __init__(
        self,
        graph: Graph,
        fetches: list,
        fed: list[SymbolicTensor],
        steps: list[StepNode] | None = None,
        memory_budget: float | None = None,
        soft_placement: bool = False,
    ):
        self.graph = graph
        self.reports = [Report(memory_budget)]  # of all groups
        self.fetches = [f for f in fetches if isinstance(f, Value)]
        self.fed = fed
        fed_set = set(fed)
        self.passed = passed_through(fetches, fed_set) if steps is None else set()
        nodes = needed(fetches, fed_set - self.passed) if steps is None else steps
        self.places = Places(nodes, soft_placement)
        self.steps = [n for n in nodes if not isinstance(n.op, Fed)]
        self.waits = any(n.control for n in self.steps)
        self.missing = next((n for n in nodes if n.op.is_placeholder), None)
        # Where all that is drawn has seeds of its own, iterations differ in the same way at each run.
        self._seeded = not any(draws_from_the_run(n.op) for n in self.steps)
        self.last_outcome = None
        if self.missing is None:
            self._build(nodes, fed_set)

    # -- building

    def _build(self, nodes, fed: set):
        self._frames = Frames(nodes, fed, self.fetches, self.known_frames)
        self._grouping = Grouping(nodes, self._frames, fed, self.passed, self.ranks)
        self._units: list[Unit] = []
        self._ports: dict = {}  # value -> (unit, output) where it is made
        self._entered: dict = {}  # (value, frame) -> port of a constant brought into a frame
        self._unit_of: dict[StepNode, int] = {}
        self._done: dict[int, int] = {}
        self.variables: list = []
        self._cell: dict = {}
        self.held = [
            n.outputs[0] for n in nodes if isinstance(n.op, Fed) and n.op.tensor is not None and n.outputs[0] not in fed
        ]
        for v in [*self.fed, *self.held]:
            self._ports[v] = (self._add(Unit(SOURCE, [v.node], num_outputs=1)), 0)
        self._fed = fed
        self._make_units()
        self._connect()
        self._add_fetches()
        builder = _runtime.FlowBuilder()
        for unit in self._units:
            builder.add(
                unit.kind, unit.inputs, list(dict.fromkeys(unit.controls)), list(dict.fromkeys(unit.orders)), unit.num_outputs,
                unit.task, unit.frame, unit.constant, unit.parallel, unit.always,
            )  # fmt: skip
        self._flow = builder.build(len(self._frames.parents))

    def in_loop(self, node: StepNode) -> bool:
        return bool(self._frames.frame_of[node])

    def _add(self, unit: Unit) -> int:
        self._units.append(unit)
        return len(self._units) - 1

    def _make_units(self):
        """A unit for everything that runs; connections come after, since loops close."""
        frames = self._frames
        self._inputs: dict[int, list] = {}  # unit -> values it takes
        fetched = set(self.fetches)
        consumers = {}
        for node in self.steps:
            for v in node.inputs:
                consumers.setdefault(v, []).append(node)
        self._groups = [(g, self._grouping.helpers(g)) for g in self._grouping.groups]
        kept_by = {id(group): self._kept(helpers) for group, helpers in self._groups}
        used_by_helpers = {v for kept in kept_by.values() for v in kept}
        for group, helpers in self._groups:
            inside = {v for n in (*group, *helpers) for v in n.outputs}
            used_by_helpers.update(v for n in helpers for v in n.inputs if v not in inside)
        for group, helpers in self._groups:
            members = set(group)
            results = [
                v for n in group for v in n.outputs
                if v not in self._fed
                and (v in fetched or v in used_by_helpers or any(c not in members for c in consumers.get(v, ())))
            ]  # fmt: skip
            self._add_group(group, helpers, results, kept_by[id(group)])
        for node in self.steps:
            if node in self._unit_of or self._grouping.floating(node):
                continue
            if isinstance(node.op, Primitive):
                unit = Unit(_KIND[type(node.op)], [node], num_outputs=len(node.outputs))
                if isinstance(node.op, Enter):
                    unit.frame = frames.entered(node)
                    unit.constant = node.op.is_constant
                    unit.parallel = node.op.parallel_iterations
            elif is_host(node):
                unit = Unit(COMPUTE, [node], host_task(node), len(node.outputs))
                unit.always = node.op.always
            elif isinstance(node.op, Print):
                unit = Unit(COMPUTE, [node], _printing_task(node), 1)
            else:
                assert isinstance(node.op, Group)
                unit = Unit(COMPUTE, [node])
            at = self._unit_of[node] = self._add(unit)
            self._inputs[at] = list(node.inputs)
            for v in node.outputs:
                self._ports.setdefault(v, (at, v.index))

    def _kept(self, helpers) -> list:
        """What a group that takes gradients gets from who computed it, instead of computing it again: see Note [Groups]."""
        return [
            v for n in helpers if not self._grouping.floating(n) and is_costly(n)
            for v in n.outputs if v not in self._fed
        ]  # fmt: skip

    def _add_group(self, group, helpers, results, kept):
        steps = sorted([*helpers, *group], key=self.steps.index)
        inside = {v for n in steps for v in n.outputs}
        keys = dict.fromkeys([*(v for n in steps for v in n.inputs if v not in inside or v in self._fed), *kept])
        reads = dict.fromkeys(v for n in steps for v in variables_read(n) if v not in self._fed)
        written = list(dict.fromkeys(v for n in group for v in written_by(n)))
        keys = [v for v in keys if v not in reads]
        reads = list(reads)
        self._check_repeated(group, helpers)
        function = self._function(steps, [*reads, *keys], results, written, kept)
        task = _runtime.plan_task(function, [self._cell_of(v) for v in reads], [self._cell_of(v) for v in written])
        at = self._add(Unit(COMPUTE, group, task, len(results)))
        self._inputs[at] = keys
        for n in group:
            self._unit_of[n] = at
        for k, v in enumerate(results):
            self._ports[v] = (at, k)
        return at

    def _check_repeated(self, group, helpers):
        """What a group computes again must read what it read the first time."""
        for node in helpers:
            for v in variables_read(node):
                between = [
                    n for n in self.steps if v in written_by(n) and position(node) < position(n) < position(group[-1])
                ]
                if between:
                    raise refuse(
                        group[-1],
                        f"gradients are taken of {node.name!r} after {v.name!r}, which it reads, is written by {between[0].name!r}",
                        fix="ask for gradients before the assignment, or assign under td.control_dependencies([gradient])",
                    )

    def _cell_of(self, v) -> int:
        if v not in self._cell:
            self._cell[v] = len(self.variables)
            self.variables.append(v)
        return self._cell[v]

    def _function(self, steps, keys, results, written, kept=()):
        touches = any(is_variable(v) for v in keys) or written

        def body(inputs, generator):
            trace = Trace(self, keys, inputs, generator, place_random=True)
            trace.passed = {*self.passed, *kept}
            for node in steps:
                trace.step(node)
            trace.check_guards()
            return (*(trace.value(v) for v in results), *(trace.state[v] for v in written))

        role = Role(whole=True, own_results=len(written) if touches else None, report=self.reports[0])
        return make_function("run", body, PARAMETERS, role=role)

    # -- connecting

    def _connect(self):
        for at in list(self._inputs):
            unit = self._units[at]
            node = unit.nodes[0]
            frame = self._frames.frame_of[node] or 0
            unit.inputs = [self._port(v, frame) for v in self._inputs[at]]
            for n in unit.nodes:
                unit.controls += [self._unit_of[c] for c in n.control if c in self._unit_of and self._unit_of[c] != at]
                for before in self._grouping.orders[n]:
                    earlier = self._done_of(before) if isinstance(before, int) else self._unit_of[before]
                    if earlier != at:
                        unit.orders.append(earlier)
            if frame and not unit.inputs and not unit.controls:
                raise refuse(
                    node, "nothing that this node takes is in the loop it belongs to", fix="give it a value of the loop"
                )

    def _done_of(self, frame: int) -> int:
        if frame not in self._done:
            self._done[frame] = self._add(Unit(DONE, frame=frame))
        return self._done[frame]

    def _port(self, v, frame: int) -> tuple[int, int]:
        """Where a value comes from, as seen from a frame."""
        if v not in self._ports:
            if is_variable(v) and v not in self._fed:
                return self._read(v, frame)
            return self._compute_apart(v, frame)
        if v in self._fed:
            if frame:
                raise refuse(v.node, f"{v.name!r} is fed, and used inside a loop", fix="bring it in with enter")
            return self._ports[v]
        if frame and self._frames.frame_of[v.node] is None:
            return self._bring_in(v, self._ports[v], frame)
        return self._ports[v]

    def _bring_in(self, v, port, frame: int) -> tuple[int, int]:
        """A constant of the graph, in a loop: it enters each frame on the way."""
        if frame == 0:
            return port
        made = self._entered.get((v, frame))
        if made is None:
            unit = Unit(ENTER, [v.node], num_outputs=1, frame=frame, constant=True, parallel=self._parallel(frame))
            unit.inputs = [self._bring_in(v, port, self._frames.parents[frame])]
            made = self._entered[v, frame] = (self._add(unit), 0)
        return made

    def _parallel(self, frame: int) -> int:
        return next(
            n.op.parallel_iterations for n in self.steps if isinstance(n.op, Enter) and self._frames.entered(n) == frame
        )

    def _read(self, v, frame: int):
        """A variable that a primitive takes itself: a read of its own, outside of loops."""
        made = self._entered.get((v, 0))
        if made is None:
            function = self._function([], [v], [v], [])
            task = _runtime.plan_task(function, [self._cell_of(v)], [])
            made = self._entered[v, 0] = (self._add(Unit(COMPUTE, [v.node], task, 1)), 0)
        return self._bring_in(v, made, frame)

    def _compute_apart(self, v, frame: int):
        """What needs no value of the run, taken by a primitive or a Python function."""
        steps = [*self._grouping.helpers([v.node]), v.node]
        inside = {u for n in steps for u in n.outputs}
        keys = list(dict.fromkeys(u for n in steps for u in n.inputs if u not in inside))
        reads = [u for u in keys if is_variable(u)]
        keys = [u for u in keys if u not in reads]
        made = self._entered.get((v, 0))
        if made is None:
            task = _runtime.plan_task(
                self._function(steps, [*reads, *keys], [v], []), [self._cell_of(u) for u in reads], []
            )
            unit = Unit(COMPUTE, [v.node], task, 1)
            made = self._entered[v, 0] = (self._add(unit), 0)
            unit.inputs = [self._port(u, 0) for u in keys]
        return self._bring_in(v, made, frame)

    def _add_fetches(self):
        for v in self.fetches:
            if is_variable(v) and v not in self._fed:
                continue  # its value at the end of the run
            unit = Unit(FETCH, [v.node])
            unit.inputs = [self._port(v, 0)]
            self._add(unit)

    # -- running

    def execute(self, session, fed: list) -> list:
        cells = [session.cell(v) for v in self.variables]
        for v, cell in zip(self.variables, cells, strict=True):
            if cell.tensor is None and any(v in variables_read(n) for n in self.steps):
                session.check_value(v)
        seed = 0 if self._seeded else session.next_seed()
        operands = [*fed, *(cell.tensor for cell in cells if cell.tensor is not None)]
        place = run_device(self.places, operands, fed, session.held(self.held))
        with place as (fed, held), session.cancellable() as cancellation:
            outcome = self._flow.run([*fed, *held], cells, session.lock, seed, _runtime.num_threads(), cancellation)
        written = {v for n in self.steps for v in written_by(n)}
        for v, cell in zip(self.variables, cells, strict=True):
            if v.shared is not None and v in written:
                session.keep(v, cell.tensor)
                session.note_writes([v])
        self.last_outcome = outcome
        if outcome.error is not None:
            raise self._located(outcome)
        if outcome.failed_node == -2:
            raise CancelledError("run", "the session was closed while this ran")
        results = iter(outcome.results)
        return [
            session.value_of(v) if is_variable(v) and v not in self._fed else self._live(v, next(results))
            for v in self.fetches
        ]

    def _live(self, v, value):
        if value is None:
            raise ValueRangeError(
                "run",
                f"{v.name!r} is dead in this run: it depends on the output of a Switch that was not taken",
                fix="merge the branches with merge([a, b]), and fetch that",
                source=v.node.source,
            )
        return value

    def _located(self, outcome):
        error = outcome.error
        if outcome.failed_node >= 0 and isinstance(error, TandemError):
            for node in self._units[outcome.failed_node].nodes:
                if node.source is not None and node.source != error.source:
                    error.add_note(f"  {node.name!r} {show_shape(node.outputs[0].type.shape) if node.outputs else ''} "
                                   f"was built at {node.source}")  # fmt: skip
        return error
