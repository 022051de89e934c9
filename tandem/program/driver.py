"""The road from a graph to a program: passes, code generation, writing. Nothing else calls them."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections import Counter
from typing import NamedTuple

from tandem import _runtime
from tandem.codegen import Schedule, lower
from tandem.codegen.loops import Kernel
from tandem.codegen.lower import place
from tandem.codegen.own_memory import own_memory
from tandem.codegen.parts import lower_parts
from tandem.codegen.peak import memory_of
from tandem.codegen.recompute import recompute
from tandem.codegen.schedule import kernels_of
from tandem.codegen.targets import target_of
from tandem.devices import DEVICES
from tandem.errors import CompileWarning, TandemError, UnsupportedError, warn
from tandem.forks import compiling
from tandem.graph.ir import Graph
from tandem.graph.timing import pass_times
from tandem.graph.view import show_bytes
from tandem.machine import preload
from tandem.ops.region import Region
from tandem.passes.pipeline import check_names, run_pipeline
from tandem.program import stored
from tandem.program.identity import identify_by_graph
from tandem.program.request import Request, Size, Source
from tandem.switches import DEBUG, PRINT, SKIP


class Program(NamedTuple):
    """What a request became."""

    builder: _runtime.PlanBuilder
    graph: Graph | None  # after the passes; None if it came from disk
    written: object  # what the request's `write` gave
    facts: dict  # numbers and text, for reports
    seconds: dict  # phase -> time


def compile(request: Request) -> Program:
    with compiling():
        return _compile(request)


def _compile(request: Request) -> Program:
    if not request.options.whole:
        return _compile_operator(request)
    started = time.perf_counter()
    if SKIP or PRINT:
        check_names()  # here, as a program from disk goes through no passes
    source = None
    if request.key is None and not request.options.fresh:
        source = request.build()
        identify_by_graph(request, source)
    found = None if request.options.fresh else stored.load(request)
    if found is not None:
        builder, written, facts = found
        return Program(builder, None, written, facts, {"load": time.perf_counter() - started})
    if preload.watches_calls and 0 in request.all_devices:
        preload.begin_compiling()  # programs are hardly ever prebuilt
    return _compile_whole(request, source)


# -- a single operator


def _compile_operator(request: Request) -> Program:
    source = request.build()
    graph = source.graph
    target = target_of(request.device)
    if request.options.captured:
        target.begin_ahead(graph)
    builder = _runtime.PlanBuilder()
    return Program(builder, graph, request.write(source, _lower_operator(source, target, request), builder), {}, {})


def _lower_operator(source: Source, target, request: Request) -> Schedule:
    graph = source.graph
    if source.devices is not None:
        return _lower_over_devices(source, request)
    has_regions = any(isinstance(node.op, Region) for node in graph.nodes)
    inside = run_pipeline if has_regions else None
    exact_views, saved = request.options.exact_views and not source.writes, source.saved
    if source.writes:  # results lie in the memory of what is written, and nowhere else; those behind them are made
        written = graph.outputs
        saved = [v for v in saved if all(v is not r for r in written)]
        graph.outputs = written[source.writes :]
    try:
        if request.options.captured and target.places_first and not has_regions:
            return place(graph, source.layouts, saved, target, exact_views, source.on_host)
        return lower(graph, source.layouts, saved, inside, target, exact_views, on_host=source.on_host)
    finally:
        if source.writes:
            graph.outputs = written


def _lower_over_devices(source: Source, request: Request, optimise=None) -> Schedule:
    main = str(DEVICES[request.device])
    return lower_parts(lower, source.graph, source.layouts, source.devices, main, source.saved, optimise)


# -- a whole program


def _compile_whole(request: Request, source: Source | None) -> Program:
    facts: dict = {"passes": {}}
    seconds: dict = {}
    started = time.perf_counter()
    if source is None and request.size is None:
        source = request.build()
    with _compiling_beside(request, source):
        source, schedule = make(request, source, facts, seconds)
        recorder = stored.Recorder(request.number)
        write_started = time.perf_counter()
        written = request.write(source, schedule, recorder)
        compile_started = time.perf_counter()
    for kernel in kernels_of(schedule):
        if type(kernel) is Kernel:  # those of devices are compiled all at once, when the program first runs
            kernel.address()
    seconds["write"] = compile_started - write_started
    seconds["compile"] = time.perf_counter() - compile_started
    facts["total"] = time.perf_counter() - started
    stored.save(request, recorder, written, facts)
    return Program(recorder.builder, source.graph, written, facts, seconds)


def _compiling_beside(request: Request, source: Source | None):
    """While inside, processes beside this one compile kernels as they become known."""
    size = request.size or size_of(source.graph)
    with contextlib.ExitStack() as stack:
        for device in request.all_devices:
            is_large = size.is_large and request.options.memory_budget is None
            stack.enter_context(target_of(device).compiling(is_large, size.kinds))
        return stack.pop_all()


def size_of(graph: Graph) -> Size:
    """How much there is to compile; an operator call is a few nodes."""
    kinds = {(n.op.name, *(v.type for v in n.outputs)) for n in graph.nodes if not n.op.is_input}
    return Size(len(graph.nodes) // 3, len(kinds) // 3)


def make(request: Request, source: Source | None, facts: dict, seconds: dict) -> tuple[Source, Schedule]:
    """The graph after all passes, and its schedule."""
    started = time.perf_counter()
    source = source or request.build()
    facts["joined"] = len(source.graph.nodes)
    built = time.perf_counter()
    seconds["join"] = built - started
    try:
        source, schedule = _optimise(request, source, facts, seconds)
    except (TandemError, MemoryError, UnsupportedError):
        raise
    except Exception as error:
        if not request.options.unfused_on_failure:
            raise
        tell_failure(error, f"{request.name!r}", None)
        source, schedule = _unfused(request, source)
    graph = source.graph
    graph.schedule = schedule
    facts["memory"] = graph.memory = memory_of(graph, schedule)
    facts.update(nodes=len(graph.nodes), steps=len(schedule.steps))
    return source, schedule


def _optimise(request: Request, source: Source, facts: dict, seconds: dict) -> tuple[Source, Schedule]:
    started = time.perf_counter()
    arrange = target_of(request.device).arranges and source.devices is None
    source = _simplify(source, facts.setdefault("passes", {}), arrange)
    if request.options.own_results is not None:
        own_memory(source.graph, request.options.own_results)
    simplified = time.perf_counter()
    simple, budget = source.graph, request.options.memory_budget
    target = target_of(request.device)
    if source.devices is not None:
        budget = None
        with pass_times() as taken:
            schedule = _lower_over_devices(source, request, _optimise_part)
        facts["passes"].update({name: facts["passes"].get(name, 0) + seconds for name, seconds in taken.items()})
    elif budget is None or source.saved or not target.recomputes:
        budget = None
        with pass_times() as taken:
            schedule = lower(
                simple, source.layouts, source.saved, target=target, exact_views=request.options.exact_views,
                in_pieces=True, epilogues=True, on_host=source.on_host,
            )  # fmt: skip
        facts["passes"].update(taken)
    else:
        source.graph, schedule = recompute(simple, source.layouts, budget)
    if PRINT:
        _print_stages(simple, source.graph, schedule, budget)
    seconds.update(passes=simplified - started, lower=time.perf_counter() - simplified)
    return source, schedule


def _optimise_part(graph: Graph, layouts: list, device: int) -> Graph:
    """What one device computes, once more: what stood between its nodes is elsewhere now."""
    return run_pipeline(graph, None, layouts if target_of(device).arranges else None)


def _simplify(source: Source, times: dict, arrange: bool) -> Source:
    graph = _with_saved(source)
    simple = run_pipeline(graph, times, source.layouts if arrange else None)
    count = len(source.graph.outputs)
    simple.outputs, saved = simple.outputs[:count], simple.outputs[count:]
    new = dict(zip(source.graph.inputs, simple.inputs, strict=True))
    on_host = {new[v] for v in source.on_host}
    return Source(simple, source.layouts, source.positions, on_host, saved, source.writes, source.devices)


def _with_saved(source: Source) -> Graph:
    """The graph with what backward keeps among its results, so that passes keep it too."""
    if not source.saved:
        return source.graph
    graph = Graph(source.graph.symbols, source.graph.name)
    for name in ("inputs", "nodes", "mutations"):
        setattr(graph, name, getattr(source.graph, name))
    graph.outputs = [*source.graph.outputs, *source.saved]
    return graph


def schedule_for(graph: Graph, target) -> tuple[Graph, Schedule]:
    """A graph on row-major inputs after all passes, and its steps for a target whose programs do not run here."""
    simple = run_pipeline(graph)
    return simple, lower(simple, [None] * len(simple.inputs), target=target)


def _unfused(request: Request, source: Source) -> tuple[Source, Schedule]:
    """Every operator by itself, as eager calls would be: without passes, and with every value in memory."""
    graph = source.graph
    if request.options.own_results is not None:
        own_memory(graph, request.options.own_results)
    if source.devices is not None:
        return source, _lower_over_devices(source, request)
    values = [v for n in graph.nodes if not n.op.is_input for v in n.outputs]
    target, exact_views = target_of(request.device), request.options.exact_views
    return source, lower(graph, source.layouts, values, None, target, exact_views, on_host=source.on_host)


def tell_failure(error: Exception, what: str, report):
    """Every rule was checked when the operators were called, so what fails here is our mistake; the user's step must not pay."""
    cause = f"{type(error).__name__}: {error}".strip()
    if report is not None:
        report.failures.append(cause)
    if DEBUG >= 1:
        traceback.print_exception(error)
    warn(
        f"{what} could not be compiled ({cause}); they run eagerly instead (fallback), with the same results. "
        "This is a mistake in Tandem, please report it; TANDEM_DEBUG=1 shows where it happened",
        CompileWarning,
    )


def _print_stages(simple: Graph, graph: Graph, schedule: Schedule, budget):
    """What code generation made of the graph, where TANDEM_PRINT names its stages (STAGES in passes/pipeline.py)."""
    if "recompute" in PRINT:
        if budget is None:
            print("== recompute: no memory_budget for this program, so that nothing is computed again")
        else:
            more = Counter(n.op.name for n in graph.nodes) - Counter(n.op.name for n in simple.nodes)
            again = ", ".join(f"{count} {name}" for name, count in more.items() if name != "again") or "nothing"
            peak = show_bytes(memory_of(graph, schedule)["peak"])
            print(
                f"== recompute: {len(simple.nodes)} -> {len(graph.nodes)} nodes, peak {peak}; computed again: {again}"
            )
