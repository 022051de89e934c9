"""From captured calls to one program: their graphs joined, simplified and lowered together.

Called when a compiled function meets a sequence of calls that it has no program for (src/capture/capture.h). The first program is
made for the very sizes of the call but for the leading axis of data, the batch; if others change too, a second one computes with
symbolic sizes and serves them all. Programs are kept on disk (stored.py).
"""

from __future__ import annotations

from tandem import dtypes
from tandem.codegen import Layout
from tandem.devices import DEVICES
from tandem.errors import RecompileWarning, UnsupportedError, module_calls, source_at
from tandem.graph.ir import Builder, Graph, Origin, Type, Value, placed, source_scope
from tandem.graph.substitution import substitute, symbol_indices
from tandem.graph.symbolic import Sym, hint, mentions
from tandem.ops.define import Op, add_input
from tandem.ops.movement import Reshape
from tandem.ops.region import Region
from tandem.program.driver import compile as compile_program
from tandem.program.driver import make, tell_failure
from tandem.program.report import Site, budget_of, reports
from tandem.program.request import Options, Request, Size, Source
from tandem.program.stored import key_of
from tandem.program.write import ProgramWriter
from tandem.tracing.compile import NUMBER_DTYPES, Tracing, resolve_sizes
from tandem.tracing.describe import (
    INT,
    LEAF,
    NUMBER,
    RESULT,
    ROW_MAJOR,
    STRIDED,
    CallSpec,
    Captured,
    TensorSpec,
    spanned,
)
from tandem.tracing.inputs import input_type
from tandem.tracing.labels import labels_of, state_of


def compile_capture(captured: Captured):
    """The program of what was captured; None where none can be made: the calls then run one operator at a time (the fallback)."""
    try:
        return _compile(captured)
    except (UnsupportedError, MemoryError, RecompileWarning):  # what the caller can do something about
        raise
    except Exception as error:
        tell_failure(error, f"a program of {len(captured.calls)} operator calls", captured.report)
        return None


def _compile(captured: Captured):
    calls, leaves, _, ints, _, writes, symbolic, ended, report, *_ = captured
    free = _free_axes(leaves, writes, symbolic, _fixed(captured))
    free_ints = _free_ints(ints, leaves, free, symbolic)
    known = [_known_sizes(leaf, axes) for leaf, axes in zip(leaves, free, strict=True)]
    shapes = [leaf.shape for leaf in leaves]
    described = {
        "ended": ended, "shapes": shapes, "ints": ints, "symbolic": symbolic, "calls": len(calls),
        "sizes": [leaf.shape for leaf in known],
        "sites": [Site(call.plan.name, call.code, call.line) for call in calls],
        "given": [(call.plan.arguments, call.operands) for call in calls],
    }  # fmt: skip
    if report is not None and not report.may_compile(described):
        return None
    request = _request(captured, known, free, free_ints)
    program = compile_program(request)
    graph = program.graph
    if graph is None:  # from disk: made when asked for

        def graph():
            return make(request, None, {}, {})[0].graph

    facts = {"memory": None, **program.facts, **described, "labels": labels_of(captured)}
    if program.written != shapes:
        facts["memory"] = None  # counted again when asked for
    for told in reports(report):
        told.append({**facts, "graph": graph, "seconds": program.seconds})
    return program.builder


def _request(captured: Captured, known: list[TensorSpec], free: list, free_ints: list[bool]) -> Request:
    calls, leaves, numbers, ints, outputs, writes, _, _, report, first, _ = captured
    budget = budget_of(report)
    devices = captured.devices
    places = module_calls.places(first, len(calls)) if captured.device or devices else None

    def build() -> Source:
        graph, layouts, joined = join(calls, leaves, numbers, ints, free, free_ints, places=places)
        graph.outputs = [joined[site] for site in outputs]
        graph.mutations = [(leaf, joined[call, output]) for leaf, call, output in writes]
        resolve_sizes(graph)
        on_host = {v for i, v in enumerate(graph.inputs) if i >= len(leaves) or not leaves[i].device}
        where = [*(str(DEVICES[leaf.device]) for leaf in leaves), *(None for _ in numbers)] if devices else None
        return Source(graph, layouts, range(len(graph.inputs)), on_host, devices=where)

    def write(source: Source, schedule, builder) -> list:
        ProgramWriter(request, source, schedule, builder).write()
        return [leaf.shape for leaf in leaves]  # what was measured

    request = Request(
        name="program",
        build=build,
        device=captured.device,
        devices=devices,
        write=write,
        spec=captured.spec,
        options=Options(
            whole=True,
            memory_budget=budget,
            fresh=report is not None and report.fresh,
            unfused_on_failure=False,  # the calls themselves can run
        ),
        size=Size(len(calls), len({id(call.plan) for call in calls})),
        key=_key(captured, known, free_ints, budget),
        origin=lambda number: _origin_of_call(number, calls[number], places),
        number=lambda origin: origin.call,
    )
    return request


def _key(captured: Captured, known: list[TensorSpec], free_ints: list[bool], budget) -> str:
    """`known`: per input its dtype, layout and sizes, None for those that the program computes with."""
    described = []
    for call in captured.calls:
        if call.plan.digest is None:
            return ""
        described.append((call.plan.digest, [tuple(o) for o in call.operands], call.temporaries))
    ints = [(v < 0, v == 1) if is_free else v for v, is_free in zip(captured.ints, free_ints, strict=True)]
    # Numbers that a program computes with differ from call to call; their kinds do not.
    kinds = [number.kind for number in captured.numbers]
    devices = captured.devices or (captured.device,)
    return key_of(devices, (described, known, kinds, ints, captured.outputs, captured.writes, budget))


def _origin_of_call(number: int | None, call: CallSpec, places: list[tuple] | None = None) -> Origin | None:
    if call.code is None:
        return None
    place = places[number] if places is not None and number is not None else None
    return Origin(call.plan.name, source_at(call.code, call.line), number, place)


def join(
    calls,
    leaves,
    numbers,
    ints,
    free: list[set[int] | None],
    free_ints: list[bool],
    finish=None,
    places=None,
    bind=None,
    integers=None,
    plan_of=None,
):
    """One graph of all calls; gives it, the layouts of its inputs, and the Value of every (call, output).

    finish, places, bind, plan_of: see join_calls
    integers(inputs): what stands for the integers, where that follows from the inputs
    """
    graph = Graph(name="program")
    symbols = graph.symbols
    layouts: list[Layout | None] = []
    with Builder(graph) as builder, Tracing():
        leaf_values = []
        for position, leaf in enumerate(leaves):
            type, layout = _leaf(symbols, position, leaf, free[position])
            leaf_values.append(add_input(builder, type))
            layouts.append(layout)
        number_values = []
        for number in numbers:
            number_values.append(add_input(builder, Type(NUMBER_DTYPES.get(number.kind, dtypes.int64), (), weak=True)))
            layouts.append(None)
        first_int = len(leaves) + len(numbers)
        if integers is not None:
            int_dims = integers(leaf_values)
        else:
            int_dims = [_int(symbols, first_int + i, v, free_ints[i]) for i, v in enumerate(ints)]

        joined = join_calls(builder, calls, leaf_values, number_values, int_dims, finish, True, places, bind, plan_of)
    return graph, layouts, joined


def join_calls(
    builder: Builder,
    calls: list[CallSpec],
    leaves,
    numbers,
    ints,
    finish=None,
    numbered: bool = False,
    places=None,
    bind=None,
    plan_of=None,
) -> dict[tuple[int, int], Value]:
    """The nodes of captured calls in the graph being built: the Value of every (call, output).

    finish(value, recorded): what stands for a result, given whether gradients were being recorded.
    numbered: whether nodes know the number of their call. Those from the body of a loop do not: they know their line only as long
    as the body is there.
    places: in which modules calls were made, for errors that show late (tandem/errors/module_calls.py)
    bind(call): the device that its nodes are bound to; where it runs here, if not given
    plan_of(call, values): another plan for it, given its operands
    """
    joined: dict[tuple[int, int], Value] = {}
    bodies: dict[int, _Body] = {}  # by the identity of plans
    spread = bool(spanned(calls))
    for number, call in enumerate(calls):
        values = {}
        for position, (kind, index, output) in enumerate(call.operands):
            if kind == LEAF:
                values[position] = leaves[index]
            elif kind == RESULT:
                values[position] = joined[index, output]
            elif kind == NUMBER:
                values[position] = numbers[index]
            elif kind == INT:
                values[position] = ints[index]
        plan = call.plan if plan_of is None else plan_of(call, values)
        body = bodies.get(id(plan))
        if body is None:
            body = bodies[id(plan)] = _Body(plan)
        origin = _origin_of_call(number if numbered else None, call, places)
        # A scope says where new tensors are made; what has operands runs where they are. Of calls on several devices, each runs
        # where it was called, whatever passes make of its operands.
        here = call.device == plan.device or (spread and not plan.over_devices)
        bound = bind(call) if bind is not None else DEVICES[plan.device] if here else None
        with source_scope(origin), placed(builder, (), bound):
            results = _replay(builder, plan, values, [plan.temporaries[t] for t in call.temporaries], body)
            for i, value in enumerate(results):
                joined[number, i] = value if finish is None else finish(value, call.recorded)
    return joined


def _leaf(symbols, position: int, description, free: set[int] | None) -> tuple[Type, Layout | None]:
    """An input; `free` are the axes whose sizes the program computes with, None for all."""

    def size(n, kind, axis):
        symbol = symbols.new(n, (kind, position, axis), not_one=kind == "size", signed=kind == "stride")
        if free is None or (kind == "size" and axis in free):
            return symbol
        symbols.require("==", symbol - n)
        return n

    return input_type(description, size)


def _free_axes(leaves, writes, symbolic: bool, fixed: set[int]) -> list[set[int] | None]:
    """Which sizes of each input the program computes with: all of them, or at first only those of the leading axis of data.

    Batches are what changes most, and a size that is known costs nothing to compile. What is written or has a gradient is no data,
    nor is what a module has: `fixed`.
    """
    if symbolic:
        return [set() if position in fixed else None for position in range(len(leaves))]
    kept = fixed | {leaf for leaf, _, _ in writes}
    return [
        {0} if position not in kept and not leaf.requires_grad and leaf.shape and leaf.layout == ROW_MAJOR else set()
        for position, leaf in enumerate(leaves)
    ]


def _fixed(captured: Captured) -> set[int]:
    """Inputs whose sizes stay: parameters and buffers of the modules that were called. Not so where earlier programs of the same
    calls had them in other sizes, as when a function is called with one module after the other."""
    found = state_of(captured)
    if not found or not captured.symbolic:
        return found
    names, operands = [call.plan.name for call in captured.calls], [call.operands for call in captured.calls]
    earlier = [
        entry["shapes"]
        for entry in captured.report or ()
        if entry is not None
        and [site.name for site in entry["sites"]] == names
        and [given for _, given in entry["given"]] == operands
    ]
    same = (all(shapes[i] == captured.leaves[i].shape for i in found) for shapes in earlier)
    return found if earlier and all(same) else set()


def _free_ints(ints, leaves, free, symbolic: bool) -> list[bool]:
    """Which integer arguments the program computes with: those that may be made of a free size, as the batch times the length is.
    Comparing finds out: one that is not turns out to be equal to a known size."""
    batches = {leaf.shape[0] for leaf, axes in zip(leaves, free, strict=True) if axes and leaf.shape[0] > 1}
    return [symbolic or (v > 1 and any(v % n == 0 for n in batches)) for v in ints]


def _known_sizes(leaf: TensorSpec, free: set[int] | None) -> TensorSpec:
    """A leaf as far as its program depends on it."""
    strides = leaf.strides if leaf.layout == STRIDED else None
    if free is None:
        shape = tuple(n if n == 1 else None for n in leaf.shape)
        strides = strides and tuple(s if s in (0, 1) else None for s in strides)
    else:
        shape = tuple(None if axis in free and n != 1 else n for axis, n in enumerate(leaf.shape))
    return leaf._replace(shape=shape, strides=strides, requires_grad=False)


def _int(symbols, position: int, value: int, symbolic: bool):
    symbol = symbols.new(value, ("int", position), signed=value < 0)
    if symbolic and value != 1:  # a 1 may be a size that is broadcast: literal, as everywhere
        symbols.require(">=" if value >= 0 else "<", symbol)
        symbols.require("!=", symbol - 1)
        return symbol
    symbols.require("==", symbol - value)
    return value


class _Body:
    """What all calls of a plan in one program have in common."""

    def __init__(self, plan):
        graph = self.graph = plan.graph
        symbols = graph.symbols
        self.origins = list(enumerate(symbols.origins))
        strides = {("sym", i) for i, origin in self.origins if origin[0] == "stride"}
        # What the plan relied on; capture has asked about strides: views were found.
        self.guards = [e for relation, e in symbols.guards if relation == "==" and not mentions(e, strides)]
        self.inputs = list(zip(graph.inputs, plan.positions, strict=True))
        self.nodes = [(node, _has_sizes(node.op)) for node in graph.nodes if not node.op.is_input]
        self.replayed: dict[tuple, list] = {}  # sizes -> operators and types of the nodes, once a call had these sizes
        # A region's graphs, and sizes that exist only inside, are made for each call.
        self.repeats = not any(isinstance(node.op, Region) for node, _ in self.nodes)


def _has_sizes(op) -> bool:
    """Whether `substitute` may make another operator of it."""
    return type(op).substitute is not Op.substitute or any(symbol_indices(getattr(op, f)) for f in op._fields)


def _replay(builder: Builder, plan, values: dict, temporaries: list[Value], body: _Body | None = None) -> list[Value]:
    """The nodes of a call's plan once more, on the program's values."""
    body = body or _Body(plan)
    graph = body.graph
    sizes = {}
    for index, origin in body.origins:
        if origin[0] == "size":
            sizes[index] = values[origin[1]].shape[origin[2]]
        elif origin[0] == "int":
            sizes[index] = values[origin[1]]
        elif origin[0] != "local":  # a region's own is made again
            sizes[index] = graph.symbols.hints[index]
    made: dict[Value, Value] = {}
    copies: dict = {}
    for v, position in body.inputs:
        made[v] = _with_ones(values[position], v.shape)
    key = tuple(sizes.values())
    known = body.replayed.get(key)
    if known is not None:  # a call of these sizes was here before: there is nothing more to learn
        for (node, _), (op, types) in zip(body.nodes, known, strict=True):
            new = builder.again(node, tuple([made[v] for v in node.inputs]), copies, op, types)
            made.update(zip(node.outputs, new.outputs, strict=True))
        return [made[v] for v in [*graph.outputs, *temporaries]]
    for expression in body.guards:  # equal sizes become one
        difference = substitute(expression, sizes)
        if difference != 0:
            raise AssertionError(
                f"{plan.name}: sizes do not satisfy the plan they were captured with ({hint(difference)})"
            )
    replayed = []
    for node, has_sizes in body.nodes:
        op = node.op.substitute(lambda d: substitute(d, sizes)) if has_sizes else node.op
        new = builder.again(node, tuple([made[v] for v in node.inputs]), copies, op)
        made.update(zip(node.outputs, new.outputs, strict=True))
        replayed.append((op, tuple([v.type for v in new.outputs])))
        if isinstance(op, Reshape):
            _match_sizes(new.inputs[0].shape, new.outputs[0].shape)
    if body.repeats and not builder.checks:
        body.replayed[key] = replayed
    return [made[v] for v in [*graph.outputs, *temporaries]]


def _match_sizes(before: tuple, after: tuple):
    """Learns that integer arguments are sizes which the program knows, from a reshape of one into the other.

    Note [Sizes among arguments]
    A gradient is given the shape of what it is the gradient of as integers, and nothing says which sizes they are. Where none of
    them is known, an index must be divided to find where an element lies before a reshape, for each element. So sizes at the same
    place that are equal in this call are taken to be one: a call in which they are not gets a program of its own.
    """
    i, j = len(before) - 1, len(after) - 1
    while i >= 0 and j >= 0:
        left, right = before[i], after[j]
        if hint(left) == hint(right):
            if left is not right and (_is_argument(left) or _is_argument(right)):
                bool(left == right)  # asking teaches
            i, j = i - 1, j - 1
            continue
        a, b = hint(left), hint(right)
        i, j = i - 1, j - 1
        while a != b:  # axes that are made one, or one that is cut into several
            if a < b and i >= 0:
                a, i = a * hint(before[i]), i - 1
            elif b < a and j >= 0:
                b, j = b * hint(after[j]), j - 1
            else:
                return


def _is_argument(d) -> bool:
    """Whether a size is made of integer arguments."""
    return isinstance(d, Sym) and any(d.symbols.origins[i][0] == "int" for i in symbol_indices(d))


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
