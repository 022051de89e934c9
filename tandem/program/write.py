"""Writes a schedule down as a native plan: sizes as slots, buffers as values, steps as instructions (src/plan/plan.h)."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tandem import _runtime
from tandem._runtime import IntCode, RegionKind, Relation, SizeFrom, ValueKind
from tandem.codegen import (
    BlocksStep,
    Buffer,
    EpilogueStep,
    KernelStep,
    LibraryStep,
    PartStep,
    RegionStep,
    TransferStep,
    UpdateStep,
)
from tandem.codegen.buffer import root_of
from tandem.codegen.order import writes_input
from tandem.codegen.targets import target_of
from tandem.graph.ir import Origin
from tandem.graph.substitution import symbol_indices
from tandem.graph.symbolic import Dim, Sym
from tandem.program.request import Request, Source
from tandem.program.stored import Recorder, write_origin
from tandem.switches import DEBUG

# Numbers of the runtime's enums: what is written is kept on disk, too (stored.py).
_SIZE, _STRIDE, _INT = SizeFrom.Size.value, SizeFrom.Stride.value, SizeFrom.Int.value
_ADD, _MUL, _SUB = IntCode.Add.value, IntCode.Mul.value, IntCode.Sub.value
_CODES = {
    "floordiv": IntCode.FloorDiv.value, "mod": IntCode.Mod.value, "min": IntCode.Min.value, "max": IntCode.Max.value,
}  # fmt: skip
_RELATIONS = {
    "==": Relation.Equal.value, "!=": Relation.NotEqual.value, "<": Relation.Less.value, ">=": Relation.GreaterEqual.value,
}  # fmt: skip
_INPUT, _FRESH, _VIEW = ValueKind.Input.value, ValueKind.Fresh.value, ValueKind.View.value
_REGIONS = {kind.name.lower(): kind.value for kind in RegionKind}


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

    def __init__(self, name: str, graph, positions: Sequence[int], schedule, builder, device: int):
        self.name = name
        self.graph = graph
        self.positions = positions
        self.schedule = schedule
        self.builder = builder
        self.slot = Slots(self.builder, graph.symbols)
        self.values: dict[Buffer, int] = {}
        self.device = device

    def write_steps(self, kept_values):
        self.write_place()
        self._guards()
        self.write_instructions(kept_values)

    def write_instructions(self, kept_values):
        builder = self.builder
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

    def _guards(self):
        origins = self.graph.symbols.origins
        for relation, expression in self.graph.symbols.guards:
            if any(origins[i][0] == "local" for i in symbol_indices(expression)):
                continue  # what a region asked of its own sizes
            self.builder.guard(_RELATIONS[relation], self.slot(expression))

    def write_place(self):
        """What the plan is called and where it runs."""
        self.builder.set_name(self.name)
        if self.device:
            self.builder.set_device(self.device)
        if self.over_devices:
            self.builder.set_over_devices()

    @property
    def over_devices(self) -> bool:
        """Whether the steps are those of a program over several devices."""
        return bool(self.schedule.steps) and isinstance(self.schedule.steps[0], (PartStep, TransferStep))

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
            if buffer.device is not None or buffer.pinned:
                self.builder.place(index, self.device if buffer.device is None else buffer.device, buffer.pinned)
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
        if isinstance(self.builder, Recorder):
            self.builder.origin(origin)
        else:
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
        elif isinstance(step, BlocksStep):
            self._library(step)
            for part in step.parts:
                self.builder.part(*PartWriter(part, self, set()).write())
            self.builder.block_kernels(step.first)
        elif isinstance(step, RegionStep):
            self._region(step)
        elif isinstance(step, EpilogueStep):
            self._epilogue(step)
        elif isinstance(step, UpdateStep):
            self._updates(step)
        elif isinstance(step, TransferStep):
            self.builder.transfer(self.value(step.inputs[0]), self.value(step.outputs[0]))
        elif isinstance(step, PartStep):
            self.builder.part(*DevicePartWriter(step, self).write())
            self.builder.run_part([self.value(b) for b in step.inputs], [self.value(b) for b in step.outputs])
        else:
            self._library(step)

    def _library(self, step: LibraryStep):
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

    def _updates(self, step: UpdateStep):
        self._library(step.collective)
        for factors in step.factors:
            self.builder.factors(self.value(factors.a), self.value(factors.b), factors.piece)
        for update in step.updates:
            kernel = update.kernel
            self.builder.update(
                kernel.kernel,
                [self.value(b) for i, b in enumerate(kernel.buffers) if i != update.slot],
                [self.slot(d) for d in kernel.ints],
                self.slot(kernel.extent),
                kernel.block,
                update.piece,
                update.slot,
                update.dense,
                update.keeps,
                int(kernel.kernel.key[:15], 16),
                kernel.cost,
            )

    def _region(self, step: RegionStep):
        op = step.op
        for part in step.parts:
            writer = PartWriter(part, self, symbol_indices(op.size) if op.name == "block" else set())
            self.builder.part(*writer.write())
        extent = {"scan": lambda: op.length, "while": lambda: op.maximum}.get(op.name, lambda: None)()
        self.builder.region(
            _REGIONS["repeat" if op.name == "while" and len(step.parts) == 1 else op.name],
            [self.value(b) for b in step.inputs],
            [self.value(b) for b in step.outputs],
            op.carried,
            op.scanned,
            -1 if extent is None else self.slot(extent),
            op.reverse,
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


class ProgramWriter(ScheduleWriter):
    """What all requests have in common: the steps, and the results in order."""

    _has_written = False  # whether a step was written down that writes an input

    def __init__(self, request: Request, source: Source, schedule, builder):
        super().__init__(request.name, source.graph, source.positions, schedule, builder, request.device)
        self.arguments = max(source.positions, default=-1) + 1  # those that the steps know of
        self.whole = request.options.whole
        self.source = source
        self.tells_writes = self.whole and target_of(request.device).has_own_memory

    def _step(self, step):
        if self.whole and not self._has_written:
            if writes_input(step):
                self._has_written = True
                self.builder.begin_writes()
        super()._step(step)

    def write(self):
        self.write_steps(self._kept())
        if self.over_devices:
            pass  # each part is replayed or laid out by itself
        elif self.whole and self.device:
            self._set_replayed()
        elif self.whole:
            self.builder.lay_out()
        self._outputs()

    def _kept(self) -> list:
        """Values that outlive the run."""
        return self.graph.outputs

    def _outputs(self):
        for v in self.graph.outputs:
            self.builder.output(self.value(self.schedule.buffer_of[v]), -1, -1, False)

    def _set_replayed(self):
        """What the runtime must know to replay a program: which arguments it writes, and which lie on the host."""
        on_device = {p for v, p in zip(self.graph.inputs, self.positions, strict=True) if not self._is_on_host(v)}
        self.builder.set_program(
            self.arguments,
            [self.positions[position] for position, _ in self.graph.mutations],
            [p for p in range(self.arguments) if p not in on_device],
        )

    def _is_on_host(self, value) -> bool:
        buffer = self.schedule.buffer_of.get(value)
        return buffer is None or buffer.on_host


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
        builder = Recorder(outer.builder.number) if isinstance(outer.builder, Recorder) else type(outer.builder)()
        positions = range(len(graph.inputs))
        super().__init__(graph.name or "body", graph, positions, part.schedule, builder, outer.device)
        self.slot = PartSlots(builder, graph.symbols, outer.slot, len(graph.inputs), own)

    def write(self) -> tuple:
        self.write_place()
        for step in self.schedule.steps:
            self._step(step)
        return self.builder, self.slot.handed_in


class DevicePartWriter(ProgramWriter):
    """The plan of one device's part of a program over several: a whole program, whose sizes are handed in."""

    whole = True

    def __init__(self, step: PartStep, outer: ScheduleWriter):
        graph, number = step.graph, len(step.graph.inputs)
        builder = Recorder(outer.builder.number) if isinstance(outer.builder, Recorder) else type(outer.builder)()
        ScheduleWriter.__init__(self, outer.name, graph, range(number), step.schedule, builder, step.device)
        self.slot = PartSlots(builder, graph.symbols, outer.slot, number, set())
        self.arguments = number
        self.tells_writes = target_of(step.device).has_own_memory

    def write(self) -> tuple:
        super().write()
        return self.builder, self.slot.handed_in

    def _guards(self):
        """Those of the whole program hold."""
