"""From captured calls to one program: their graphs joined, simplified and lowered together.

Called when a compiled function meets a sequence of calls that it has no program for (src/program/capture.h). The first program is
made for the very sizes of the call but for the leading axis of data, the batch; if others change too, a second one computes with
symbolic sizes and serves them all. Programs are kept on disk (stored.py).
"""

from __future__ import annotations

from typing import NamedTuple

from tandem import dtypes
from tandem.codegen import Layout
from tandem.devices import DEVICES
from tandem.errors import UnsupportedError, source_at
from tandem.graph.ir import Builder, Graph, Origin, Type, Value, placed, source_scope
from tandem.graph.symbolic import Sym, hint, mentions, substitute
from tandem.ops.define import add_input
from tandem.ops.movement import Reshape
from tandem.program.driver import compile as compile_program
from tandem.program.driver import make, tell_failure
from tandem.program.report import Report, Site, budget_of, reports
from tandem.program.request import Options, Request, Size, Source
from tandem.program.stored import key_of
from tandem.program.write import ProgramWriter
from tandem.tracing.compile import NUMBER_DTYPES, _Tracing, resolve_sizes
from tandem.tracing.inputs import input_type

_NONE, _LEAF, _RESULT, _NUMBER, _INT = range(5)


class Captured(NamedTuple):
    """A sequence of calls, as the runtime describes it (src/program/capture_program.cc)."""

    calls: list[tuple]  # (plan, operands, temporaries, code, line, recorded, device)
    leaves: list[tuple]
    numbers: list[tuple]
    ints: list[int]
    outputs: list[tuple[int, int]]  # (call, output)
    writes: list[tuple[int, int, int]]  # (leaf, call, output)
    symbolic: bool
    ended: str
    report: Report | None

    @property
    def device(self) -> int:
        return self.calls[0][0].device

    @property
    def spec(self) -> list[tuple]:
        return [*self.leaves, *self.numbers, *(("int", v) for v in self.ints)]


def compile_capture(*description):
    """The program of what was captured; None where none can be made, when the calls run one by one."""
    captured = Captured(*description)
    try:
        return _compile(captured)
    except (UnsupportedError, MemoryError):  # what the caller can do something about
        raise
    except Exception as error:
        tell_failure(error, f"a program of {len(captured.calls)} operator calls", captured.report)
        return None


def _compile(captured: Captured):
    calls, leaves, _, ints, _, writes, symbolic, ended, report = captured
    free = _free_axes(leaves, writes, symbolic)
    free_ints = _free_ints(ints, leaves, free, symbolic)
    known = [_known_sizes(leaf, axes) for leaf, axes in zip(leaves, free, strict=True)]
    shapes = [shape for _, _, shape, *_ in leaves]
    request = _request(captured, known, free, free_ints)
    program = compile_program(request)
    graph = program.graph
    if graph is None:  # from disk: made when asked for

        def graph():
            return make(request, None, {}, {})[0].graph

    facts = {"memory": None, **program.facts, "calls": len(calls), "symbolic": symbolic}
    if program.written != shapes:
        facts["memory"] = None  # counted again when asked for
    for told in reports(report):
        told.append({
            **facts, "graph": graph, "seconds": program.seconds, "ended": ended, "shapes": shapes, "ints": ints,
            "sizes": [sizes for _, _, sizes, *_ in known],
            "sites": [Site(plan.name, code, line) for plan, _, _, code, line, *_ in calls],
            "given": [(plan.arguments, operands) for plan, operands, *_ in calls],
        })  # fmt: skip
    return program.builder


def _request(captured: Captured, known: list[tuple], free: list, free_ints: list[bool]) -> Request:
    calls, leaves, numbers, ints, outputs, writes, _, _, report = captured
    budget = budget_of(report)

    def build() -> Source:
        graph, layouts, joined = join(calls, leaves, numbers, ints, free, free_ints)
        graph.outputs = [joined[site] for site in outputs]
        graph.mutations = [(leaf, joined[call, output]) for leaf, call, output in writes]
        resolve_sizes(graph)
        on_host = {v for i, v in enumerate(graph.inputs) if i >= len(leaves) or not leaves[i][7]}
        return Source(graph, layouts, range(len(graph.inputs)), on_host)

    def write(source: Source, schedule, builder) -> list:
        ProgramWriter(request, source, schedule, builder).write()
        return [shape for _, _, shape, *_ in leaves]  # what was measured

    request = Request(
        name="program",
        build=build,
        device=captured.device,
        write=write,
        spec=captured.spec,
        options=Options(
            whole=True,
            memory_budget=budget,
            fresh=report is not None and report.fresh,
            unfused_on_failure=False,  # the calls themselves can run
        ),
        size=Size(len(calls), len({id(plan) for plan, *_ in calls})),
        key=_key(captured, known, free_ints, budget),
        origin=lambda number: _origin_of_call(number, calls[number]),
        number=lambda origin: origin.call,
    )
    return request


def _key(captured: Captured, known: list[tuple], free_ints: list[bool], budget) -> str:
    """`known`: per input its dtype, layout and sizes, None for those that the program computes with."""
    described = []
    for plan, operands, temporaries, *_ in captured.calls:
        if plan.digest is None:
            return ""
        described.append((plan.digest, operands, temporaries))
    ints = [(v < 0, v == 1) if is_free else v for v, is_free in zip(captured.ints, free_ints, strict=True)]
    # Numbers that a program computes with differ from call to call; their kinds do not.
    kinds = [kind for kind, *_ in captured.numbers]
    return key_of(captured.device, (described, known, kinds, ints, captured.outputs, captured.writes, budget))


def _origin_of_call(number: int, call: tuple) -> Origin | None:
    plan, _, _, code, line, *_ = call
    return None if code is None else origin_of(number, plan, code, line)


def origin_of(number: int | None, plan, code, line: int) -> Origin:
    return Origin(plan.name, source_at(code, line), number)


def join(calls, leaves, numbers, ints, free: list[set[int] | None], free_ints: list[bool]):
    """One graph of all calls; gives it, the layouts of its inputs, and the Value of every (call, output)."""
    graph = Graph(name="program")
    symbols = graph.symbols
    layouts: list[Layout | None] = []
    with Builder(graph) as builder, _Tracing():
        leaf_values = []
        for position, leaf in enumerate(leaves):
            type, layout = _leaf(symbols, position, leaf, free[position])
            leaf_values.append(add_input(builder, type))
            layouts.append(layout)
        number_values = []
        for kind, *_ in numbers:
            number_values.append(add_input(builder, Type(NUMBER_DTYPES.get(kind, dtypes.int64), (), weak=True)))
            layouts.append(None)
        first_int = len(leaves) + len(numbers)
        int_dims = [_int(symbols, first_int + i, v, free_ints[i]) for i, v in enumerate(ints)]

        joined = join_calls(builder, calls, leaf_values, number_values, int_dims, origin_of=origin_of)
    return graph, layouts, joined


def join_calls(
    builder: Builder, calls, leaves, numbers, ints, finish=None, origin_of=None
) -> dict[tuple[int, int], Value]:
    """The nodes of captured calls in the graph being built: the Value of every (call, output).

    finish(value, recorded): what stands for a result, given whether gradients were being recorded.
    origin_of(number, plan, code, line): where the nodes of a call come from.
    """
    joined: dict[tuple[int, int], Value] = {}
    for number, (plan, operands, temporaries, code, line, recorded, device) in enumerate(calls):
        values = {}
        for position, (kind, index, output) in enumerate(operands):
            if kind == _LEAF:
                values[position] = leaves[index]
            elif kind == _RESULT:
                values[position] = joined[index, output]
            elif kind == _NUMBER:
                values[position] = numbers[index]
            elif kind == _INT:
                values[position] = ints[index]
        origin = None
        if code is not None:
            origin = (origin_of or _body_origin)(number, plan, code, line)
        # A scope says where new tensors are made; what has operands runs where they are.
        bound = DEVICES[device] if device == plan.device else None
        with source_scope(origin), placed(builder, (), bound):
            results = _replay(builder, plan, values, [plan.temporaries[t] for t in temporaries])
            for i, value in enumerate(results):
                joined[number, i] = value if finish is None else finish(value, recorded)
    return joined


def _body_origin(number: int, plan, code, line: int) -> Origin:
    return origin_of(None, plan, code, line)  # its line is known only as long as the body is there


def _leaf(symbols, position: int, description, free: set[int] | None) -> tuple[Type, Layout | None]:
    """An input; `free` are the axes whose sizes the program computes with, None for all."""

    def size(n, kind, axis):
        symbol = symbols.new(n, (kind, position, axis), not_one=kind == "size", signed=kind == "stride")
        if free is None or (kind == "size" and axis in free):
            return symbol
        symbols.require("==", symbol - n)
        return n

    return input_type(description, size)


def _free_axes(leaves, writes, symbolic: bool) -> list[set[int] | None]:
    """Which sizes of each input the program computes with: all of them, or at first only those of the leading axis of data.

    Batches are what changes most, and a size that is known costs nothing to compile. What is written or has a gradient is no data.
    """
    if symbolic:
        return [None] * len(leaves)
    written = {leaf for leaf, _, _ in writes}
    return [
        {0} if position not in written and not leaf[6] and len(leaf[2]) > 0 and leaf[4] == 0 else set()
        for position, leaf in enumerate(leaves)
    ]


def _free_ints(ints, leaves, free, symbolic: bool) -> list[bool]:
    """Which integer arguments the program computes with: those that may be made of a free size, as the batch times the length is.
    Comparing finds out: one that is not turns out to be equal to a known size."""
    batches = {leaf[2][0] for leaf, axes in zip(leaves, free, strict=True) if axes and leaf[2][0] > 1}
    return [symbolic or (v > 1 and any(v % n == 0 for n in batches)) for v in ints]


def _known_sizes(leaf, free: set[int] | None) -> tuple:
    """A leaf as far as its program depends on it."""
    kind, code, shape, strides, layout_class, order, _, device = leaf
    if free is None:
        shape = tuple(n if n == 1 else None for n in shape)
        strides = tuple(s if s in (0, 1) else None for s in strides) if layout_class == 2 else None
    else:
        shape = tuple(None if axis in free and n != 1 else n for axis, n in enumerate(shape))
        strides = strides if layout_class == 2 else None
    return kind, code, shape, strides, layout_class, order, device


def _int(symbols, position: int, value: int, symbolic: bool):
    symbol = symbols.new(value, ("int", position), signed=value < 0)
    if symbolic and value != 1:  # a 1 may be a size that is broadcast: literal, as everywhere
        symbols.require(">=" if value >= 0 else "<", symbol)
        symbols.require("!=", symbol - 1)
        return symbol
    symbols.require("==", symbol - value)
    return value


def _replay(builder: Builder, plan, values: dict, temporaries: list[Value]) -> list[Value]:
    """The nodes of a call's plan once more, on the program's values."""
    graph = plan.graph
    sizes = {}
    for index, origin in enumerate(graph.symbols.origins):
        if origin[0] == "size":
            sizes[index] = values[origin[1]].shape[origin[2]]
        elif origin[0] == "int":
            sizes[index] = values[origin[1]]
        elif origin[0] != "local":  # a region's own is made anew
            sizes[index] = graph.symbols.hints[index]
    strides = {("sym", i) for i, origin in enumerate(graph.symbols.origins) if origin[0] == "stride"}
    for relation, expression in graph.symbols.guards:  # what the plan relied on; equal sizes become one
        if relation == "==" and not mentions(expression, strides):  # capture has asked about strides: views were found
            difference = substitute(expression, sizes)
            if difference != 0:
                raise AssertionError(
                    f"{plan.name}: sizes do not satisfy the plan they were captured with ({hint(difference)})"
                )
    made: dict[Value, Value] = {}
    copies: dict = {}
    for i, v in enumerate(graph.inputs):
        made[v] = _with_ones(values[plan.positions[i]], v.shape)
    for node in graph.nodes:
        if node.op.name == "input":
            continue
        op = node.op.substitute(lambda d: substitute(d, sizes))
        new = builder.again(node, tuple(made[v] for v in node.inputs), copies, op)
        for old, fresh in zip(node.outputs, new.outputs, strict=True):
            made[old] = fresh
    return [made[v] for v in [*graph.outputs, *temporaries]]


def _with_ones(value: Value, shape) -> Value:
    """A value with the number 1 for every size that is 1 in the plan, which may be computed in the program: x[1:] of two rows.
    What is broadcast is written so."""
    written = tuple(1 if type(n) is int and n == 1 and isinstance(d, Sym) else d for n, d in zip(shape, value.shape))
    if all(a is b for a, b in zip(written, value.shape)):
        return value
    for d, n in zip(value.shape, written):
        if d is not n:
            d.symbols.require("==", d - 1)
    return Reshape(written)(value)
