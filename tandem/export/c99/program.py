"""A schedule as C functions: kernels and routines as they are first met, then the steps that call them.

Note [Bodies]
A body is a function with the steps of one schedule: of the whole program, or of a graph inside a loop or branch, whose operands are
parameters. Steps are counted through all of them in the order in which they are written; a value lives from the step that writes it
to the last that reads it, and one that a loop reads lives until the loop ends. What a body allocates is gone when it returns, so
bodies share the arena with what is around them.
"""

from __future__ import annotations

import numpy as np

from tandem.codegen import Buffer, KernelStep, RegionStep, Schedule
from tandem.codegen.buffer import dense_strides, root_of
from tandem.codegen.c.ops import Ops
from tandem.errors import UnsupportedError
from tandem.export.c99 import regions, routines
from tandem.export.c99.arena import Arena
from tandem.export.c99.arrange import copy_elements
from tandem.export.c99.call import Call, Operand
from tandem.export.c99.kernels import KernelText
from tandem.export.c99.text import Text
from tandem.graph.ir import Graph


class Body:
    """names: what the inputs of the graph are called in it."""

    def __init__(self, graph: Graph, schedule: Schedule, names: list[str]):
        self.graph, self.schedule, self.names = graph, schedule, names
        self.lines: list[str] = []
        self.buffers: dict[Buffer, str] = {}  # names of what it allocates


class Program:
    """weights: arrays by the position of their input; results: names of the pointers that results are written to."""

    def __init__(
        self, graph: Graph, schedule: Schedule, names: list[str], weights: dict[int, np.ndarray], results: list[str]
    ):
        self.ops = Ops()
        self.weights = {names[i]: w for i, w in weights.items()}  # those that are read
        self.functions: dict[tuple, str] = {}  # (parameters, text) -> name
        self.sources: list[str] = []
        self.arena, self.clock = Arena(), 0
        self.declared: list[tuple[str, object]] = []  # names and types of what lies in the arena
        self.results = results
        self._constants = weights
        self._readers = _reader_counts(schedule)
        self.read: set[str] = set()
        self.body = Body(graph, schedule, names)
        self._place_results()
        self._write(self.body)
        self._store_results()
        self.offsets, self.arena_bytes = self.arena.plan()
        self.weights = {name: w for name, w in self.weights.items() if name in self.read}

    # -- results

    def _place_results(self):
        """Results that a step can write where the caller wants them are no part of the arena."""
        for value, name in zip(self.body.graph.outputs, self.results, strict=True):
            buffer = self.body.schedule.buffer_of[value]
            root = root_of(buffer)
            whole = (
                buffer.strides == dense_strides(buffer.shape) and _is(buffer.offset, 0) and _size(root) == _size(buffer)
            )
            if root.kind == "alloc" and whole and root not in self.body.buffers:
                self.body.buffers[root] = name

    def _store_results(self):
        """Those that lie elsewhere are copied there."""
        body = self.body
        for value, name in zip(body.graph.outputs, self.results, strict=True):
            buffer = body.schedule.buffer_of[value]
            if body.buffers.get(root_of(buffer)) != name:
                text = Text(self.ops)
                source = self._operand("x", buffer)
                copy_elements(text, source, Operand("y", buffer.dtype, buffer.shape, dense_strides(buffer.shape)))
                kind = self.ops.type(buffer.dtype)
                made = self._function("copy", [f"const {kind}* restrict x", f"{kind}* restrict y"], text.lines, "void")
                body.lines.append(f"{made}({self._pointer(body, buffer)}, {name});")

    # -- bodies

    def _write(self, body: Body):
        lives = _Lives()
        for step in body.schedule.steps:
            start = self.clock
            nodes = step.nodes if isinstance(step, KernelStep) else [step.node]
            body.lines.append(f"/* {_summary(nodes)} */")
            if isinstance(step, KernelStep):
                self._kernel(body, step)
            elif isinstance(step, RegionStep):
                self._region(body, step)
            else:
                self._library(body, step)
            lives.after(step, start, self.clock)
            self.clock += 1
        kept = {root_of(body.schedule.buffer_of[v]) for v in body.graph.outputs}
        for buffer, (first, last) in lives.found.items():
            name = body.buffers.get(buffer)
            if name is not None and name not in self.results:
                self.arena.add(
                    name, _size(buffer) * buffer.dtype.itemsize, first, self.clock if buffer in kept else last
                )

    def _name(self, body: Body, root: Buffer) -> str:
        if root.kind == "input":
            name = body.names[root.position]
            self.read.add(name)
            return name
        if root not in body.buffers:
            body.buffers[root] = f"t{len(self.declared)}"
            self.declared.append((body.buffers[root], root.dtype))
        return body.buffers[root]

    def _pointer(self, body: Body, buffer: Buffer) -> str:
        root = root_of(buffer)
        if root.dtype is not buffer.dtype:
            raise UnsupportedError("export.c", f"memory of {root.dtype} seen as {buffer.dtype} has no C form")
        self.ops.type(buffer.dtype)  # has its definition among the helpers
        name = self._name(body, root)
        return name if _is(buffer.offset, 0) else f"{name} + {int(buffer.offset)}"

    def _function(self, name: str, parameters: list[str], lines: list[str], result: str) -> str:
        """The name of a function with this text, which is written once."""
        key = (result, tuple(parameters), tuple(lines))
        found = self.functions.get(key)
        if found is None:
            found = self.functions[key] = f"{name}_{len(self.functions)}"
            end = ["  return 0;"] if result == "int" and not lines[-1].strip().startswith("return") else []
            head = f"static {result} {found}({', '.join(parameters) or 'void'}) {{"
            self.sources.append("\n".join([head, *lines, *end, "}"]))
        return found

    def _kernel(self, body: Body, step: KernelStep):
        if not int(step.extent):
            return
        text = KernelText(step.kernel, tuple(int(d) for d in step.ints), int(step.extent), self.ops)
        written = {i for i, b in enumerate(step.buffers) if any(b is w for w in step.writes)}
        roots = [root_of(b) for b in step.buffers]
        alone = all(roots[i] is not roots[j] for i in written for j in range(len(roots)) if i != j)
        lines = text.lines()
        name = self._function(_joined(step.nodes), text.parameters(written, alone), lines, "void")
        body.lines.append(f"{name}({', '.join(self._pointer(body, b) for b in step.buffers)});")

    def _operand(self, name: str, buffer: Buffer, constant=None) -> Operand:
        return Operand(name, buffer.dtype, tuple(map(int, buffer.shape)), tuple(map(int, buffer.strides)), constant)

    def _library(self, body: Body, step):
        used = [self._is_read(body, b) for b in step.outputs]
        inputs = [self._operand(f"in{i}", b, self._constant(body, b)) for i, b in enumerate(step.inputs)]
        outputs = [
            self._operand(f"out{i}", b) if read else None
            for i, (b, read) in enumerate(zip(step.outputs, used, strict=True))
        ]
        if outputs and not any(used):
            return
        call = Call(Text(self.ops), step.node.op, inputs, outputs, step.ints, step.floats)
        places = {root_of(b) for b in step.outputs}
        call.overlaps = any(root_of(b) in places for b in step.inputs)
        routines.write(call, step.node)
        arguments = [
            self._pack(body, b, call.packed[i]) if i in call.packed else self._pointer(body, b)
            for i, b in enumerate(step.inputs)
        ]
        arguments += [self._pointer(body, b) for b, read in zip(step.outputs, used, strict=True) if read]
        if call.scratch is not None:
            arguments.append(self._scratch(*call.scratch, self.clock, self.clock))
        name = self._function(step.node.op.name, call.parameters(), call.text.lines, "int" if call.fails else "void")
        called = f"{name}({', '.join(arguments)})"
        body.lines.append(f"if ({called}) return 1;" if call.fails else f"{called};")

    def _scratch(self, dtype, count: int, first: int, last: int) -> str:
        name = f"t{len(self.declared)}"
        self.declared.append((name, dtype))
        self.ops.type(dtype)
        self.arena.add(name, count * dtype.itemsize, first, last)
        return name

    def _is_read(self, body: Body, buffer: Buffer) -> bool:
        root = root_of(buffer)
        kept = {root_of(body.schedule.buffer_of[v]) for v in body.graph.outputs if v in body.schedule.buffer_of}
        return root.kind == "input" or root in kept or self._readers.get(root, 0) > 0

    # -- weights

    def _constant(self, body: Body, buffer: Buffer) -> np.ndarray | None:
        """The elements of a weight that one step alone reads, as the step sees them."""
        root = root_of(buffer)
        if (
            body is not self.body
            or root.kind != "input"
            or root.position not in self._constants
            or self._readers[root] != 1
        ):
            return None
        whole = self._constants[root.position].reshape(-1)[int(buffer.offset) :]
        strides = [int(s) * whole.itemsize for s in buffer.strides]
        return np.lib.stride_tricks.as_strided(whole, tuple(map(int, buffer.shape)), strides)

    def _pack(self, body: Body, buffer: Buffer, array: np.ndarray) -> str:
        name = body.names[root_of(buffer).position]
        self.weights[name] = array
        self.read.add(name)
        return name

    # -- regions

    def _region(self, body: Body, step: RegionStep):
        write = {"cond": regions.cond, "scan": regions.scan, "while": regions.while_}.get(step.op.name)
        if write is None:
            raise UnsupportedError("export.c", f"{step.op.name} has no C form: its sizes are known only when it runs")
        started = self.clock
        parts = [self._part(part) for part in step.parts]
        text = Text(self.ops)
        text.depth = 0
        with text.block(""):
            region = regions.Region(
                text, step, parts, [self._pointer(body, b) for b in step.inputs], [self._pointer(body, b) for b in step.outputs],
                lambda dtype, count: self._scratch(dtype, count, started, self.clock),
            )  # fmt: skip
            write(region)
        body.lines += text.lines

    def _part(self, part) -> str:
        """The function of a graph inside of a region: its inputs are parameters, results go to the last of them."""
        inner = Body(part.graph, part.schedule, [f"a{i}" for i in range(len(part.graph.inputs))])
        written = _inputs_written(part.schedule)
        self._write(inner)
        parameters = [
            f"{'' if i in written else 'const '}{self.ops.type(v.dtype)}* a{i}" for i, v in enumerate(part.graph.inputs)
        ]
        unused = [f"  (void){name};" for name in inner.names]
        return self._function("part", parameters, [*unused, *("  " + line for line in inner.lines)], "int")


class _Lives:
    """The first and last step of what a body allocates."""

    def __init__(self):
        self.found: dict[Buffer, tuple[int, int]] = {}

    def after(self, step, start: int, end: int):
        used = step.buffers if isinstance(step, KernelStep) else (*step.inputs, *step.outputs)
        for buffer in used:
            root = root_of(buffer)
            if root.kind == "alloc":
                first, _ = self.found.get(root, (start, end))
                self.found[root] = (first, end)


def _inputs_written(schedule: Schedule) -> set[int]:
    """Positions of the inputs that steps write to."""
    found = set()
    for step in schedule.steps:
        for buffer in step.writes if isinstance(step, KernelStep) else step.outputs:
            root = root_of(buffer)
            if root.kind == "input":
                found.add(root.position)
    return found


def _reader_counts(schedule: Schedule) -> dict[Buffer, int]:
    """How many steps read each piece of memory."""
    counts: dict[Buffer, int] = {}
    for step in schedule.steps:
        if isinstance(step, KernelStep):
            read = [b for b in step.buffers if not any(b is w for w in step.writes)]
        else:
            read = step.inputs
        for root in {root_of(b) for b in read}:
            counts[root] = counts.get(root, 0) + 1
        if isinstance(step, RegionStep):
            for part in step.parts:
                counts.update(_reader_counts(part.schedule))
    return counts


def _is(d, n: int) -> bool:
    return isinstance(d, int) and d == n


def _size(buffer: Buffer) -> int:
    size = 1
    for n in buffer.shape:
        size *= int(n)
    return size


def _joined(nodes: list) -> str:
    """A name for a kernel: the operators in it, as far as they fit."""
    names = list(
        dict.fromkeys(n.op.name for n in nodes if n.op.name not in ("reshape", "expand", "permute", "constant"))
    )
    return "_".join(names[:3]) or "move"


def _summary(nodes: list) -> str:
    last = nodes[-1] if nodes else None
    if last is None:
        return "copy"
    made = f"{', '.join(dict.fromkeys(n.op.name for n in nodes))} -> {', '.join(repr(v.type) for v in last.outputs)}"
    return f"{made}, {last.source}" if last.source else made
