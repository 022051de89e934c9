"""Writes a schedule down as a native plan: sizes as slots, buffers as values, steps as instructions (src/program/plan.h)."""

from __future__ import annotations

import functools

from tandem import _runtime
from tandem.codegen import Buffer, EpilogueStep, KernelStep, RegionStep
from tandem.codegen.buffer import root_of
from tandem.graph.ir import Origin
from tandem.graph.symbolic import Dim, Sym, symbol_indices
from tandem.switches import DEBUG
from tandem.tracing.stored import Recorder, digest_of, write_origin

_SIZE, _STRIDE, _INT = 0, 1, 2
_ADD, _MUL, _FLOORDIV, _MOD, _MIN, _MAX, _SUB = range(7)
_CODES = {"floordiv": _FLOORDIV, "mod": _MOD, "min": _MIN, "max": _MAX}
_RELATIONS = {"==": 0, "!=": 1, "<": 2, ">=": 3}
_INPUT, _FRESH, _VIEW = 0, 1, 2
_REGIONS = {"cond": 0, "scan": 1, "while": 2, "block": 3, "repeat": 4}
_SAVED_INPUT, _SAVED_OUTPUT, _SAVED_TEMPORARY = 0, 1, 2


class Slots:
    """Integer slots for Dims; equal expressions share one."""

    def __init__(self, builder, symbols):
        self.builder = builder
        self.symbols = symbols
        self._constants: dict[int, int] = {}
        self._made: dict = {}

    def __call__(self, d: Dim) -> int:
        if not isinstance(d, Sym):
            slot = self._constants.get(d)
            if slot is None:
                slot = self._constants[d] = self.builder.slot(d)
            return slot
        slot = self._made.get(d)
        if slot is None:
            slot = self._made[d] = self._write(d)
        return slot

    def _write(self, d: Sym) -> int:
        total = None
        constant = d.terms.get((), 0)
        for monomial, coefficient in d.terms.items():
            if not monomial:
                continue
            term = self._atom(monomial[0])
            for atom in monomial[1:]:
                term = self._binary(_MUL, term, self._atom(atom))
            if coefficient == -1 and total is not None:
                total = self._binary(_SUB, total, term)
                continue
            if coefficient != 1:
                term = self._binary(_MUL, term, self(coefficient))
            total = term if total is None else self._binary(_ADD, total, term)
        return total if constant == 0 else self._binary(_ADD, total, self(constant))

    def _binary(self, code: int, a: int, b: int) -> int:
        key = (code, a, b)
        slot = self._made.get(key)
        if slot is None:
            slot = self._made[key] = self.builder.int_op(code, a, b)
        return slot

    def _atom(self, atom) -> int:
        slot = self._made.get(atom)
        if slot is None:
            if atom[0] == "sym":
                origin = self.symbols.origins[atom[1]]
                if origin[0] == "size":
                    slot = self.builder.bind(_SIZE, origin[1], origin[2])
                elif origin[0] == "stride":
                    slot = self.builder.bind(_STRIDE, origin[1], origin[2])
                else:
                    slot = self.builder.bind(_INT, origin[1], 0)
            else:
                slot = self.builder.int_op(_CODES[atom[0]], self(atom[1]), self(atom[2]))
            self._made[atom] = slot
        return slot


class ScheduleWriter:
    """The steps of a schedule; `positions` says which argument each graph input is."""

    tells_writes = False  # whether the runtime is to know what each kernel writes

    def __init__(self, name: str, graph, positions: list[int], schedule, builder):
        self.name = name
        self.graph = graph
        self.positions = positions
        self.schedule = schedule
        self.builder = builder
        self.slot = Slots(self.builder, graph.symbols)
        self.values: dict[Buffer, int] = {}
        self.device = 0

    def write_steps(self, kept_values, device: int = 0):
        builder = self.builder
        self.device = device
        builder.set_name(self.name)
        if device:
            builder.set_device(device)
        origins = self.graph.symbols.origins
        for relation, expression in self.graph.symbols.guards:
            if any(origins[i][0] == "local" for i in symbol_indices(expression)):
                continue  # what a region asked of its own sizes
            builder.guard(_RELATIONS[relation], self.slot(expression))
        last_use = self._last_uses({root_of(self.schedule.buffer_of[v]) for v in kept_values})
        for i, step in enumerate(self.schedule.steps):
            self._step(step)
            done = last_use.get(i)
            if done:
                builder.free([self.value(b) for b in done])
        if DEBUG >= 1:
            say_devices()
        if DEBUG >= 2:
            steps = "".join(f"\n  {step}" for step in self.schedule.steps)
            print(f"tandem: {self.name}: {len(self.schedule.steps)} steps{steps}")
        if DEBUG >= 3:
            print(self.graph)

    def value(self, buffer: Buffer) -> int:
        index = self.values.get(buffer)
        if index is None:
            shape = [self.slot(d) for d in buffer.shape]
            strides = [self.slot(d) for d in buffer.strides]
            if buffer.kind == "input":
                index = self.builder.value(
                    _INPUT, buffer.dtype.code, self.positions[buffer.position], 0, shape, strides
                )
            elif buffer.kind == "view":
                base = self.value(buffer.base)
                index = self.builder.value(_VIEW, buffer.dtype.code, base, self.slot(buffer.offset), shape, strides)
            else:
                index = self.builder.value(_FRESH, buffer.dtype.code, 0, 0, shape, strides)
            if buffer.on_host:
                self.builder.on_host(index)
            self.values[buffer] = index
        return index

    def _origin(self, node):
        """Errors of the steps that follow are this node's; a single operator needs no telling."""
        origin = node.source if node is not None else None
        if isinstance(origin, Origin):
            self.write_origin(origin)
        else:
            self.builder.no_origin()

    def write_origin(self, origin: Origin):
        write_origin(self.builder, origin)

    def _step(self, step):
        self._origin(step.node if not isinstance(step, KernelStep) else step.nodes[-1] if step.nodes else None)
        if isinstance(step, KernelStep):
            self.builder.kernel(
                step.kernel,
                [self.value(b) for b in step.buffers],
                [self.slot(d) for d in step.ints],
                self.slot(step.extent),
                step.cost,
                step.kernel.name,
            )
            if hasattr(step, "extents"):  # several launches in one
                self.builder.parts([self.slot(d) for d in step.extents])
            if self.tells_writes:
                self.builder.writes([self.value(b) for b in step.writes])
        elif isinstance(step, RegionStep):
            self._region(step)
        elif isinstance(step, EpilogueStep):
            self._epilogue(step)
        else:
            self.builder.library(
                step.routine,
                [self.value(b) for b in step.inputs],
                [self.value(b) for b in step.outputs],
                [self.slot(d) for d in step.ints],
                [float(f) for f in step.floats],
                step.node.op.name,
            )

    def _epilogue(self, step: EpilogueStep):
        source, follows = step.product, step.follows
        result = self.value(source.outputs[0])
        self.builder.library(
            source.routine,
            [self.value(b) for b in source.inputs],
            [result] if step.keeps else [],
            [],
            [],
            f"{source.node.op.name} then {follows.kernel.name}",
        )
        self.builder.epilogue(
            follows.kernel,
            [self.value(b) for i, b in enumerate(follows.buffers) if i != step.slot],
            [self.slot(d) for d in follows.ints],
            step.slot,
            result,
            step.keeps,
            step.alike,
            follows.element_cost,
        )

    def _region(self, step: RegionStep):
        op = step.op
        for part in step.parts:
            writer = PartWriter(part, self, symbol_indices(op.size) if op.name == "block" else set())
            self.builder.part(*writer.write(self.device))
        extent = {"scan": lambda: op.length, "while": lambda: op.maximum}.get(op.name, lambda: None)()
        self.builder.region(
            _REGIONS["repeat" if op.name == "while" and len(step.parts) == 1 else op.name],
            [self.value(b) for b in step.inputs],
            [self.value(b) for b in step.outputs],
            getattr(op, "carried", 0),
            getattr(op, "scanned", 0),
            -1 if extent is None else self.slot(extent),
            getattr(op, "reverse", False),
        )

    def _last_uses(self, kept: set[Buffer]) -> dict[int, list[Buffer]]:
        last: dict[Buffer, int] = {}
        for i, step in enumerate(self.schedule.steps):
            used = step.buffers if isinstance(step, KernelStep) else (*step.inputs, *step.outputs)
            for buffer in used:
                root = root_of(buffer)
                if root.kind == "alloc" and root not in kept:
                    last[root] = i
        grouped: dict[int, list[Buffer]] = {}
        for buffer, i in last.items():
            if i + 1 < len(self.schedule.steps):  # after the last step everything goes anyway
                grouped.setdefault(i, []).append(buffer)
        return grouped


@functools.cache
def say_devices():
    """What runs here, once a process (TANDEM_DEBUG=1)."""
    print(f"tandem: cpu with {_runtime.num_threads()} threads, {_runtime.cuda_device_count()} cuda devices")


class CapturedPlan:
    """What a program that contains this plan's call needs to know of it (tandem/tracing/program.py)."""

    __slots__ = ("arguments", "device", "digest", "graph", "name", "positions", "temporaries")

    def __init__(self, name, digest, graph, positions, temporaries, device, arguments):
        self.name = name
        self.device = device
        self.digest = digest  # what it was made from (tandem/tracing/stored.py)
        self.graph = graph
        self.positions = positions
        self.temporaries = temporaries  # plan value -> Value, for what is saved besides inputs and outputs
        self.arguments = arguments  # [(name, description, its position among the operands)], for fn.explain()


def _named_arguments(parameters, spec) -> list[tuple]:
    """What a call was given, argument by argument."""
    named, position = [], 0
    for p in parameters:
        if p.kind in ("tensors", "ints") and spec[position][0] == "count":
            count = 1 + spec[position][1]
        else:
            count = 2 if p.kind == "generator" else 1
        named += [(p.name, spec[i], i) for i in range(position, position + count)]
        position += count
    return named


class PlanWriter(ScheduleWriter):
    """The plan of one operator call, with its outputs and its backward."""

    def __init__(self, function, spec, traced, schedule, split, make_backward):
        super().__init__(function.__name__, traced.graph, traced.positions, schedule, _runtime.PlanBuilder())
        self.function = function
        self.digest = digest_of(function, spec)
        self.arguments = _named_arguments(function.parameters, spec)
        self.traced = traced
        self.split = split
        self.make_backward = make_backward
        self.temporaries: dict = {}

    def write(self):
        builder = self.builder
        kept = list(self.graph.outputs[self.function.writes :])
        if self.split is not None:
            kept += [v for v in self.split.saved if v in self.schedule.buffer_of]
        self.write_steps(kept, self.traced.device)
        if getattr(self.function, "whole_program", False) and not self.traced.device:
            builder.lay_out()
        self._outputs()
        if self.split is not None:
            self._backward()
        if isinstance(self.traced.rng_advance, Sym) or self.traced.rng_advance:
            builder.set_rng_advance(self.slot(self.graph.symbols.resolve(self.traced.rng_advance)))
        builder.keep(
            CapturedPlan(
                self.name, self.digest, self.graph, self.positions, self.temporaries, self.traced.device, self.arguments
            )
        )
        return builder

    def _outputs(self):
        builder = self.builder
        builder.set_returns_tuple(self.traced.is_tuple)
        if self.function.writes:
            for k, written in enumerate(self.graph.inputs[: self.function.writes]):
                builder.output(self.value(self.schedule.buffer_of[written]), k, -1, self._differentiable(k))
        for i, v in list(enumerate(self.graph.outputs))[self.function.writes :]:
            buffer = self.schedule.buffer_of[v]
            root = root_of(buffer)
            same = view_of = -1
            if v.node.op.name == "input" and v not in self.traced.numbers:
                same = self.traced.positions[v.node.op.position]
            elif root.kind == "input":
                view_of = self.traced.positions[root.position]
            builder.output(self.value(buffer), same, view_of, self._differentiable(i))

    def _differentiable(self, i: int) -> bool:
        return self.split is not None and self.split.differentiable[i]

    def _backward(self):
        split, graph = self.split, self.graph
        positions = {v: self.traced.positions[i] for i, v in enumerate(graph.inputs)}
        outputs = {v: i for i, v in reversed(list(enumerate(graph.outputs)))}
        saved = []
        for v in split.saved:
            if v in positions:
                saved.append((_SAVED_INPUT, positions[v], -1))
            elif v in outputs:
                saved.append((_SAVED_OUTPUT, outputs[v], -1))
            else:
                copied = split.copies.get(v)
                index = self.value(self.schedule.buffer_of[v])
                self.temporaries[index] = v
                saved.append((_SAVED_TEMPORARY, index, positions[copied] if copied is not None else -1))
        symbols = graph.symbols
        ints = [self.slot(symbols._make({(("sym", i),): 1})) for i in split.sizes]
        types = [v.type for v in graph.outputs]
        name = self.function.__name__ + "_backward"
        first = self.make_backward(name, split.first, split, types)
        twice = self.make_backward(name, split.twice, split, types)
        first.digest = self.digest and self.digest + " first"
        twice.digest = self.digest and self.digest + " twice"
        self.builder.backward(
            [positions[v] for v in self.traced.wanted], saved, ints, [positions[v] for v in split.numbers], first, twice
        )


class ProgramWriter(ScheduleWriter):
    """A program made of many calls: outputs in order, no backward of its own."""

    def __init__(self, graph, schedule):
        super().__init__("program", graph, list(range(len(graph.inputs))), schedule, Recorder())
        self.writes = False  # whether a step was written down that writes an input

    def write_origin(self, origin: Origin):
        self.builder.origin(origin)

    def _step(self, step):
        if not self.writes:
            written = step.writes if isinstance(step, KernelStep) else step.outputs
            if any(root_of(b).kind == "input" for b in written):
                self.writes = True
                self.builder.begin_writes()
        super()._step(step)

    def schedule_input(self, value) -> bool:
        """Whether an input lies on the host."""
        buffer = self.schedule.buffer_of.get(value)
        return buffer is None or buffer.on_host

    def write(self, device: int = 0) -> Recorder:
        self.tells_writes = device > 0
        self.write_steps(self.graph.outputs, device)
        if device:
            inputs = [self.schedule_input(v) for v in self.graph.inputs]
            self.builder.set_program(
                len(inputs),
                [position for position, _ in self.graph.mutations],
                [i for i, on_host in enumerate(inputs) if on_host],
            )
        else:
            self.builder.lay_out()
        for v in self.graph.outputs:
            self.builder.output(self.value(self.schedule.buffer_of[v]), -1, -1, False)
        return self.builder


class PartSlots(Slots):
    """Sizes inside a region: its plan computes them from symbols that are handed in as integers."""

    def __init__(self, builder, symbols, outer: Slots, tensors: int, own: set[int]):
        super().__init__(builder, symbols)
        self.outer = outer
        self.first = tensors
        self.own = own  # the symbol that a Block brings along
        self.handed_in: list[int] = []  # slots around the region; -1 for the own one

    def _atom(self, atom) -> int:
        if atom[0] == "sym" and atom not in self._made:
            position = self.first + len(self.handed_in)
            self.handed_in.append(-1 if atom[1] in self.own else self.outer._atom(atom))
            self._made[atom] = self.builder.bind(_INT, position, 0)
        return super()._atom(atom)


class PartWriter(ScheduleWriter):
    """The plan of a region's graph. Its memory is taken once, for all runs."""

    def __init__(self, part, outer: ScheduleWriter, own: set[int]):
        graph = part.graph
        builder = type(outer.builder)()
        super().__init__(graph.name or "body", graph, list(range(len(graph.inputs))), part.schedule, builder)
        self.slot = PartSlots(builder, graph.symbols, outer.slot, len(graph.inputs), own)
        self.write_origin = builder.origin if isinstance(builder, Recorder) else self.write_origin

    def write(self, device: int) -> tuple:
        self.builder.set_name(self.name)
        if device:
            self.builder.set_device(device)
        self.device = device
        for step in self.schedule.steps:
            self._step(step)
        return self.builder, self.slot.handed_in
