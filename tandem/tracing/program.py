"""From captured calls to one program: their graphs joined, simplified and lowered together.

Called when a compiled function meets a sequence of calls that it has no program for (src/program/capture.h). The first program is
made for the very sizes of the call; if others come, a second one computes with symbolic sizes and serves them all.
"""

from __future__ import annotations

import gc
import time

from tandem import dtypes
from tandem.codegen import Layout, lower
from tandem.codegen.peak import memory_of
from tandem.errors import source_at
from tandem.graph.ir import Builder, Graph, Origin, Type, Value, source_scope
from tandem.graph.symbolic import hint, substitute
from tandem.ops.define import add_input
from tandem.passes.pipeline import run_pipeline
from tandem.tracing.compile import _Tracing, resolve_sizes
from tandem.tracing.plan import ProgramWriter

_NONE, _LEAF, _RESULT, _NUMBER, _INT = range(5)
_NUMBER_DTYPES = {"float": dtypes.float64, "bool": dtypes.bool_}


def compile_capture(*capture):
    # Graphs are many small objects that all stay: looking for garbage among them takes a third of the time and finds none.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _compile(*capture)
    finally:
        if collecting:
            gc.enable()


def _compile(calls, leaves, numbers, ints, outputs, writes, symbolic: bool, report):
    started = time.perf_counter()
    graph, layouts, joined = join(calls, leaves, numbers, ints, symbolic)
    graph.outputs = [joined[site] for site in outputs]
    graph.mutations = [(leaf, joined[call, output]) for leaf, call, output in writes]
    resolve_sizes(graph)
    joined_nodes = len(graph.nodes)
    traced = time.perf_counter()
    passes: dict[str, float] = {}
    graph = run_pipeline(graph, passes)
    simplified = time.perf_counter()
    schedule = graph.schedule = lower(graph, layouts)
    graph.memory = memory_of(graph, schedule)
    lowered = time.perf_counter()
    builder = ProgramWriter("program", graph, list(range(len(graph.inputs))), schedule).write()
    if report is not None:
        report.append(
            {
                "calls": len(calls), "joined": joined_nodes, "nodes": len(graph.nodes), "steps": len(schedule.steps),
                "symbolic": symbolic, "graph": graph, "sizes": [leaf[2] for leaf in leaves],
                "passes": passes, "memory": graph.memory,
                "seconds": {
                    "join": traced - started, "passes": simplified - traced, "lower": lowered - simplified,
                    "write": time.perf_counter() - lowered,
                },
            }
        )  # fmt: skip
    return builder


def join(calls, leaves, numbers, ints, symbolic: bool):
    """One graph of all calls; gives it, the layouts of its inputs, and the Value of every (call, output)."""
    graph = Graph(name="program")
    symbols = graph.symbols
    layouts: list[Layout | None] = []
    joined: dict[tuple[int, int], Value] = {}
    with Builder(graph) as builder, _Tracing():
        leaf_values = []
        for position, leaf in enumerate(leaves):
            type, layout = _leaf(symbols, position, leaf, symbolic)
            leaf_values.append(add_input(builder, type))
            layouts.append(layout)
        number_values = []
        for kind, *_ in numbers:
            number_values.append(add_input(builder, Type(_NUMBER_DTYPES.get(kind, dtypes.int64), (), weak=True)))
            layouts.append(None)
        first_int = len(leaves) + len(numbers)
        int_dims = [_int(symbols, first_int + i, v, symbolic) for i, v in enumerate(ints)]

        for number, (plan, operands, temporaries, code, line) in enumerate(calls):
            values = {}
            for position, (kind, index, output) in enumerate(operands):
                if kind == _LEAF:
                    values[position] = leaf_values[index]
                elif kind == _RESULT:
                    values[position] = joined[index, output]
                elif kind == _NUMBER:
                    values[position] = number_values[index]
                elif kind == _INT:
                    values[position] = int_dims[index]
            origin = None if code is None else Origin(plan.name, source_at(code, line))
            with source_scope(origin):
                results = _replay(builder, plan, values, [plan.temporaries[t] for t in temporaries])
            for i, value in enumerate(results):
                joined[number, i] = value
    return graph, layouts, joined


def _leaf(symbols, position: int, description, symbolic: bool) -> tuple[Type, Layout | None]:
    _, code, shape, strides, layout_class, order, _ = description
    dims = []
    for axis, n in enumerate(shape):
        if n == 1:
            dims.append(1)  # the key of the capture tells sizes of 1 apart
        else:
            dims.append(_size(symbols, n, ("size", position, axis), symbolic, not_one=True))
    layout = None
    if layout_class == 1:
        dense, step = [0] * len(dims), 1
        for axis in reversed(order):
            dense[axis] = step
            step = step * dims[axis]
        layout = Layout(tuple(dense), order[-1] if order else None, order)
    elif layout_class == 2:
        known = tuple(
            0
            if n == 1 or s == 0
            else 1
            if s == 1
            else _size(symbols, s, ("stride", position, axis), symbolic, signed=True)
            for axis, (n, s) in enumerate(zip(shape, strides, strict=True))
        )
        unit = next((i for i, (n, s) in enumerate(zip(shape, strides, strict=True)) if n != 1 and s == 1), None)
        layout = Layout(known, unit, None)
    return Type(dtypes.ALL[code], tuple(dims)), layout


def _size(symbols, value: int, origin, symbolic: bool, not_one=False, signed=False):
    symbol = symbols.new(value, origin, not_one=not_one, signed=signed)
    if symbolic:
        return symbol
    symbols.require("==", symbol - value)
    return value


def _int(symbols, position: int, value: int, symbolic: bool):
    symbol = symbols.new(value, ("int", position), signed=value < 0)
    if symbolic:
        symbols.require(">=" if value >= 0 else "<", symbol)
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
        else:
            sizes[index] = graph.symbols.hints[index]
    for relation, expression in graph.symbols.guards:  # what the plan relied on; equal sizes become one
        if relation == "==":
            difference = substitute(expression, sizes)
            if difference != 0:
                raise AssertionError(
                    f"{plan.name}: sizes do not satisfy the plan they were captured with ({hint(difference)})"
                )
    made: dict[Value, Value] = {}
    for i, v in enumerate(graph.inputs):
        made[v] = values[plan.positions[i]]
    for node in graph.nodes:
        if node.op.name == "input":
            continue
        op = node.op.substitute(lambda d: substitute(d, sizes))
        new = builder.add(op, tuple(made[v] for v in node.inputs))
        for old, fresh in zip(node.outputs, new.outputs, strict=True):
            made[old] = fresh
    return [made[v] for v in [*graph.outputs, *temporaries]]
