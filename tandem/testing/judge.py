"""Which step of a program gives other results than its operators do eagerly. What td.bisect uses to find a kernel at fault.

The program runs once with all of its memory kept. Then its graph is computed again node by node, each by a plan of its own, as an
eager call would be. Where a value lies in memory, the two are compared, and the program's own value goes on: so every step is
judged by what it makes of its inputs, whatever happened before it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import tandem as td
from tandem import _runtime
from tandem.codegen import EpilogueStep, KernelStep, UpdateStep
from tandem.codegen.buffer import root_of
from tandem.graph.ir import Graph, Value, current_builder
from tandem.graph.substitution import substitute
from tandem.ops.define import ParameterSpec, make_function
from tandem.program.write import ScheduleWriter
from tandem.tracing.compile import NUMBER_DTYPES


class Fault(NamedTuple):
    """A step whose result is not what its operators give.

    step        its number in the program
    name        of the kernel, or of the library's routine
    nodes       what it computes, as the graph prints it, with the user's lines
    difference  the largest difference of an element
    """

    step: int
    name: str
    nodes: tuple[str, ...]
    difference: float

    def __str__(self):
        return f"step {self.step}, {self.name}, is off by {self.difference:.3g}:" + "".join(
            f"\n    {line}" for line in self.nodes
        )


def judge(graph: Graph, tensors: list, numbers: list[tuple], ints: list[int], differ) -> list[Fault]:
    """The steps of a program at fault, in order.

    tensors, numbers, ints: what the program is about to run on. differ(expected, actual) -> (whether, largest difference).
    """
    with td.no_grad():
        kept = [(position, tensors[position].clone()) for position, _ in graph.mutations]
        expected = dict(zip(graph.inputs, [*(t.clone() for t in tensors), *map(_number, numbers)], strict=True))
        actual = _run(graph, tensors, numbers, ints)
        for position, value in graph.mutations:
            actual.setdefault(value, tensors[position].clone())
        for position, before in kept:
            tensors[position].copy_(before)
        return _compare(graph, expected, actual, differ)


def _number(description: tuple):
    kind, value = description
    return td.tensor(value, dtype=NUMBER_DTYPES.get(kind, td.int64))


def _bytes(description: tuple) -> bytes:
    kind, value = description
    if kind == "complex":
        return struct.pack("<dd", value.real, value.imag)
    return struct.pack({"float": "<d", "bool": "<?"}.get(kind, "<q"), value).ljust(16, b"\0")


def _run(graph: Graph, tensors, numbers, ints) -> dict[Value, object]:
    """The program's own value of everything that it keeps in memory."""
    schedule = graph.schedule
    writers: dict[int, list[int]] = {}  # memory -> steps that write it
    for i, step in enumerate(schedule.steps):
        for buffer in step.writes if isinstance(step, KernelStep) else step.outputs:
            writers.setdefault(id(root_of(buffer)), []).append(i)
    # Memory that several steps write holds only what the last of them left.
    values = [
        v for v, buffer in schedule.buffer_of.items()
        if root_of(buffer).kind == "alloc" and len(writers.get(id(root_of(buffer)), ())) == 1
    ]  # fmt: skip
    writer = ScheduleWriter("program", graph, range(len(graph.inputs)), schedule, _runtime.PlanBuilder(), 0)
    writer.write_steps(values)
    for v in values:
        writer.builder.output(writer.value(schedule.buffer_of[v]), -1, -1, False)
    results = writer.builder.run(tensors, [_bytes(n) for n in numbers], ints)
    return dict(zip(values, results, strict=True))


def _compare(graph: Graph, expected: dict, actual: dict, differ) -> list[Fault]:
    steps_of = _steps(graph)
    sizes = dict(enumerate(graph.symbols.hints))
    last_use = {v: i for i, node in enumerate(graph.nodes) for v in node.inputs}
    worst: dict[int, float] = {}
    for i, node in enumerate(graph.nodes):
        if node.op.is_input:
            continue
        made = _eager(node, [expected[v] for v in node.inputs], sizes)
        for v, result in zip(node.outputs, made, strict=True):
            own = actual.get(v)
            if own is not None:
                parted, difference = differ(result, own)
                if parted:
                    step = steps_of.get(v, -1)
                    worst[step] = max(worst.get(step, 0.0), difference)
                result = own
            expected[v] = result
        for v in node.inputs:
            if last_use[v] == i:
                expected.pop(v, None)
    return [_fault(graph, step, worst[step]) for step in sorted(worst)]


def _steps(graph: Graph) -> dict[Value, int]:
    """Which step makes each value that lies in memory."""
    schedule = graph.schedule
    by_memory: dict[int, int] = {}
    for i, step in enumerate(schedule.steps):
        for buffer in step.writes if isinstance(step, KernelStep) else step.outputs:
            by_memory[id(root_of(buffer))] = i
    steps = {v: by_memory[id(root_of(b))] for v, b in schedule.buffer_of.items() if id(root_of(b)) in by_memory}
    for position, value in graph.mutations:  # written straight into an input
        target = schedule.buffer_of.get(graph.inputs[position])
        if value not in steps and target is not None and id(target) in by_memory:
            steps[value] = by_memory[id(target)]
    return steps


def _eager(node, inputs: list, sizes: dict) -> list:
    """What an operator gives on these tensors, by a plan of its own."""
    op = node.op.substitute(lambda d: substitute(d, sizes)) if node.op._fields else node.op

    def body(inputs):
        return tuple(current_builder().add(op, tuple(inputs)).outputs)

    function = make_function(node.op.name, body, [ParameterSpec("inputs", "tensors", True, None, False)])
    result = function(inputs)
    return list(result) if isinstance(result, tuple) else [result]


def _fault(graph: Graph, number: int, difference: float) -> Fault:
    if number < 0:
        return Fault(number, "a value of no step", (), difference)
    step = graph.schedule.steps[number]
    if isinstance(step, KernelStep):
        nodes, name = step.nodes, f"kernel {step.kernel.name}"
    elif isinstance(step, EpilogueStep):
        nodes, name = step.nodes, f"routine {step.routine}, then kernel {step.follows.kernel.name}"
    elif isinstance(step, UpdateStep):
        nodes, name = step.nodes, f"routine {step.routine}, then {len(step.updates)} updates"
    else:
        nodes, name = [step.node], f"routine {step.routine}"
    lines = tuple(f"{n.op.name}" + (f"   # {n.source}" if n.source else "") for n in nodes)
    return Fault(number, name, lines, difference)
