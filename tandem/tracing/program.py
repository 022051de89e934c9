"""From captured calls to one program: their graphs joined, simplified and lowered together.

Called when a compiled function meets a sequence of calls that it has no program for (src/program/capture.h). The first program is
made for the very sizes of the call but for the leading axis of data, the batch; if others change too, a second one computes with
symbolic sizes and serves them all. Programs are kept on disk (stored.py).
"""

from __future__ import annotations

import gc
import time
import traceback

from tandem import dtypes, preload
from tandem.codegen import Layout, lower
from tandem.codegen.peak import memory_of
from tandem.codegen.schedule import kernels_of
from tandem.codegen.target import target_of
from tandem.codegen.workers import compiling_ahead
from tandem.devices import DEVICES
from tandem.errors import CompileWarning, UnsupportedError, source_at, warn
from tandem.graph.ir import Builder, Graph, Origin, Type, Value, placed, source_scope
from tandem.graph.symbolic import Sym, hint, mentions, substitute
from tandem.ops.define import add_input
from tandem.ops.movement import Reshape
from tandem.passes.pipeline import check_names, run_pipeline
from tandem.switches import DEBUG, PRINT, SKIP
from tandem.tracing import stored
from tandem.tracing.compile import NUMBER_DTYPES, _Tracing, resolve_sizes
from tandem.tracing.inputs import input_type
from tandem.tracing.plan import ProgramWriter

_NONE, _LEAF, _RESULT, _NUMBER, _INT = range(5)


def compile_capture(*capture):
    """The program of what was captured; None where none can be made, when the calls run one by one."""
    # Graphs are many small objects that all stay: looking for garbage among them takes a third of the time and finds none.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _compile(*capture)
    except (UnsupportedError, MemoryError):  # what the caller can do something about
        raise
    except Exception as error:
        _tell_failure(error, len(capture[0]), report=capture[-1])
        return None
    finally:
        if collecting:
            gc.enable()


def _tell_failure(error: Exception, calls: int, report):
    """Every rule was checked when the operators were called, so what fails here is our mistake; the user's step must not pay."""
    cause = f"{type(error).__name__}: {error}".strip()
    if report is not None:
        report.failures.append(cause)
    if DEBUG >= 1:
        traceback.print_exception(error)
    warn(
        f"a program of {calls} operator calls could not be compiled ({cause}); they run one by one instead, with the same results. "
        "This is a mistake in Tandem, please report it; TANDEM_DEBUG=1 shows where it happened",
        CompileWarning,
    )


def _compile(calls, leaves, numbers, ints, outputs, writes, symbolic: bool, ended: str, report):
    started = time.perf_counter()
    if SKIP or PRINT:
        check_names()  # here, as a program from disk goes through no passes
    free = _free_axes(leaves, writes, symbolic)
    free_ints = _free_ints(ints, leaves, free, symbolic)
    known = [_known_sizes(leaf, axes) for leaf, axes in zip(leaves, free, strict=True)]
    known_ints = [(v < 0, v == 1) if is_free else v for v, is_free in zip(ints, free_ints, strict=True)]
    budget = report.memory_budget if report is not None else None
    shapes = [shape for _, _, shape, *_ in leaves]
    key = stored.program_key(calls, known, numbers, known_ints, outputs, writes, budget)
    if report is not None and report.fresh:
        key = None
    found = stored.load(key, calls)
    if found is not None and found[0].accepts(leaves, len(numbers), ints):
        builder, facts = found
        if facts.pop("measured") != shapes:
            facts["memory"] = None  # counted again when asked for

        def graph():
            return _graph(calls, leaves, numbers, ints, outputs, writes, free, free_ints, budget, {}, {})[0]

        seconds = {"load": time.perf_counter() - started}
    else:
        seconds = {}
        if preload.watches_calls and _device(calls) == 0:
            preload.begin_compiling()  # programs are hardly ever foreseen
        facts = {"calls": len(calls), "symbolic": symbolic, "passes": {}, "sizes": [sizes for _, _, sizes, *_ in known]}
        with _compiling_beside(calls, budget):
            graph, schedule = _graph(
                calls, leaves, numbers, ints, outputs, writes, free, free_ints, budget, facts, seconds
            )
            written = time.perf_counter()
            recorder = ProgramWriter(graph, schedule).write(_device(calls))
            compiled = time.perf_counter()
        builder = recorder.builder
        if _device(calls) == 0:
            for kernel in kernels_of(schedule):
                kernel.address()
        seconds["write"] = compiled - written
        seconds["compile"] = time.perf_counter() - compiled
        stored.save(key, recorder, {**facts, "measured": shapes})
    if report is not None:
        sites = [(plan.name, code, line) for plan, _, _, code, line, *_ in calls]
        given = [(plan.arguments, operands) for plan, operands, *_ in calls]
        report.append({
            **facts, "graph": graph, "seconds": seconds, "ended": ended, "sites": sites, "shapes": shapes,
            "given": given, "ints": ints,
        })  # fmt: skip
    return builder


def _compiling_beside(calls, budget):
    """While inside, processes beside this one compile kernels as they become known."""
    if _device(calls) == 0:
        return compiling_ahead(budget is None and _is_large(calls))
    from tandem.codegen.cuda.compile import compiling_beside

    return compiling_beside(_device(calls) - 1, len({id(plan) for plan, *_ in calls}))


def _is_large(calls) -> bool:
    """Whether there will be kernels enough to compile them beside (Note [Compile workers])."""
    return len(calls) >= 60 and len({id(plan) for plan, *_ in calls}) >= 20


def _device(calls) -> int:
    return calls[0][0].device


def _graph(calls, leaves, numbers, ints, outputs, writes, free, free_ints, budget, facts: dict, seconds: dict):
    """The program as a graph, simplified and lowered."""
    started = time.perf_counter()
    graph, layouts, joined = join(calls, leaves, numbers, ints, free, free_ints)
    graph.outputs = [joined[site] for site in outputs]
    graph.mutations = [(leaf, joined[call, output]) for leaf, call, output in writes]
    resolve_sizes(graph)
    facts["joined"] = len(graph.nodes)
    traced = time.perf_counter()
    graph = run_pipeline(graph, facts.setdefault("passes", {}), layouts if _device(calls) == 0 else None)
    simplified = time.perf_counter()
    on_host = {v for i, v in enumerate(graph.inputs) if i >= len(leaves) or not leaves[i][7]}
    target = target_of(_device(calls))
    budget = budget if target.recomputes else None
    simple = graph
    if budget is None:
        schedule = lower(graph, layouts, target=target, in_pieces=True, epilogues=True, on_host=on_host)
    else:
        from tandem.codegen.recompute import recompute

        graph, schedule = recompute(graph, layouts, budget)
    graph.schedule = schedule
    facts["memory"] = graph.memory = memory_of(graph, schedule)
    if PRINT:
        _print_stages(simple, graph, schedule, budget)
    facts.update(nodes=len(graph.nodes), steps=len(schedule.steps))
    seconds.update({"join": traced - started, "passes": simplified - traced, "lower": time.perf_counter() - simplified})
    return graph, schedule


def _print_stages(simple: Graph, graph: Graph, schedule, budget):
    """What code generation made of the graph, where TANDEM_PRINT names its stages (PRINTED in passes/pipeline.py)."""
    from collections import Counter

    from tandem.graph.view import show_bytes

    if "recompute" in PRINT:
        if budget is None:
            print("== recompute: no memory_budget for this program, so that nothing is computed again")
        else:
            more = Counter(n.op.name for n in graph.nodes) - Counter(n.op.name for n in simple.nodes)
            again = ", ".join(f"{count} {name}" for name, count in more.items() if name != "again") or "nothing"
            peak = show_bytes(graph.memory["peak"])
            print(
                f"== recompute: {len(simple.nodes)} -> {len(graph.nodes)} nodes, peak {peak}; computed again: {again}"
            )
    if "fusion" in PRINT:
        print(f"== fusion: {len(graph.nodes)} nodes -> {len(schedule.steps)} steps")
        for step in schedule.steps:
            nodes = dict.fromkeys(getattr(step, "nodes", None) or [step.node])
            print(f"{step!r}   # {', '.join(n.op.name for n in nodes)}")
    if "epilogues" in PRINT and not any(hasattr(step, "follows") for step in schedule.steps):
        print(f"== epilogues: {len(schedule.steps)} steps, none of which joins a product")


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

        joined = join_calls(builder, calls, leaf_values, number_values, int_dims, origin_of=stored.origin_of)
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
    return Origin(plan.name, source_at(code, line), None)


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
