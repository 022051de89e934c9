"""A function or a module as a graph that stands by itself: arguments and weights are its inputs, numbers are constants in it."""

from __future__ import annotations

import dataclasses

import numpy as np

import tandem.ops as F
from tandem import _runtime
from tandem.control.body import RANDOM, Result, Taken, take_down
from tandem.errors import TandemError, UnsupportedError, ValueRangeError, warn
from tandem.export.conditions import Condition, Conditions, limit
from tandem.export.sizes import Explored, Group, explore, refusal
from tandem.export.tried import gives_the_same, with_sizes
from tandem.graph.ir import Builder, Graph, Type, current_builder, replay
from tandem.graph.substitution import substitute
from tandem.graph.symbolic import Sym, Symbols
from tandem.nn.module import Module
from tandem.ops.define import add_input
from tandem.ops.region import Region
from tandem.passes.common_subexpressions import common_subexpressions
from tandem.passes.eliminate_dead import eliminate_dead
from tandem.passes.fold_constants import fold_constants
from tandem.passes.simplify import simplify
from tandem.tensors.constructors import asarray
from tandem.tracing.compile import resolve_sizes
from tandem.tracing.describe import LEAF, ROW_MAJOR, TensorSpec
from tandem.tracing.program import join
from tandem.tree import Structure


@dataclasses.dataclass(frozen=True)
class Exported:
    """A graph with names for what comes in and goes out.

    The graph's inputs are the arguments, in order, and then the weights.
    """

    graph: Graph
    arguments: list[str]
    weights: dict[str, _runtime.Tensor]
    outputs: list[str]
    structure: Structure  # the containers that the results come in


def trace(fn, args: tuple, dynamic=True, names: list[str] | None = None) -> Exported:
    """fn as a graph, by running it once on tensors without values.

    args: tensors, or what td.asarray takes, of the types and shapes of a call.
    dynamic: True: the first axis of every argument may have any size; False: sizes are those of args; or {name: axes}.
    """
    tensors = [a if isinstance(a, _runtime.Tensor) else asarray(a) for a in args]
    names = names or [f"x{i}" if len(tensors) > 1 else "x" for i in range(len(tensors))]
    check_names(names, len(tensors), "arguments")
    axes = _dynamic_axes(dynamic, names, tensors)
    try:
        graph, result = _traced(fn, tensors, axes, names)
    except _FAILURES as error:
        fixed = [() for _ in tensors]
        if dynamic is not True or axes == fixed:
            raise
        graph, result = _traced(fn, tensors, fixed, names)
        warn("export: the function runs with the sizes of its arguments only, so these are fixed\n"
             f"  why: {_first_line(error)}\n"
             "  fix: name the axes that may change: dynamic={name: axes}", UserWarning)  # fmt: skip
    _refuse_random(graph)
    return Exported(graph, names, _weights(fn, result.taken.consts), _output_names(result.structure), result.structure)


def check_names(names, count: int, what: str):
    if len(names) != count:
        raise ValueRangeError("export", f"{len(names)} names were given for {count} {what}")
    if not all(isinstance(n, str) and n for n in names) or len(set(names)) < len(names):
        raise ValueRangeError("export", f"the names of {what} are {list(names)}; they must be texts, each once")


def with_names(exported: Exported, outputs) -> Exported:
    """With these names of results, or its own where there are none, and weights renamed whose names are taken: a file has one
    space of names for all."""
    if outputs is None:
        outputs = [unused(name, exported.arguments) for name in exported.outputs]
    else:
        check_names(outputs, len(exported.outputs), "results")
        both = sorted({*outputs} & {*exported.arguments})
        if both:
            raise ValueRangeError("export", f"{both} are names of arguments and of results")
    weights: dict = {}
    for name, t in exported.weights.items():
        weights[unused(name, {*exported.arguments, *outputs, *weights})] = t
    return dataclasses.replace(exported, weights=weights, outputs=list(outputs))


def unused(name: str, taken) -> str:
    while name in taken:
        name += "_"
    return name


_FAILURES = TandemError, IndexError, ValueError, TypeError, ArithmeticError  # `rows, columns = edges` unpacks two


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _traced(fn, tensors: list, axes: list, names: list[str]) -> tuple[Graph, Result]:
    """A graph with symbols for the sizes of these axes, and the run that it was made of."""
    groups: dict = {}
    for i, (t, free) in enumerate(zip(tensors, axes, strict=True)):
        for a in free:
            groups.setdefault((a, t.shape[a]), []).append((i, a))
    groups = [Group(a, n, names[places[0][0]], tuple(places)) for (a, n), places in groups.items()]
    fixed = {n for t, free in zip(tensors, axes, strict=True) for a, n in enumerate(t.shape) if a not in free}

    def arguments(sizes: dict) -> list:
        shapes = [list(t.shape) for t in tensors]
        for group, n in sizes.items():
            for i, a in group.places:
                shapes[i][a] = n
        return [(t.dtype, shape) for t, shape in zip(tensors, shapes, strict=True)]

    def run(sizes: dict) -> Result:
        before = _runtime.set_grad_enabled(False)
        try:
            return take_down("export", fn, [(dtype, shape, False) for dtype, shape in arguments(sizes)])
        finally:
            _runtime.set_grad_enabled(before)

    explored = explore(run, groups, fixed)
    conditions: list[Condition] = []
    graph = graph_of(explored.result.taken, arguments(explored.sizes), axes, explored=explored, conditions=conditions)
    for sizes, other in explored.others:
        if other.taken.key != explored.result.taken.key:  # other plans, for no reason that shows, perhaps
            again = graph_of(other.taken, arguments(sizes), axes, explored=explored)
            _require_equal(graph, again, explored.sizes, sizes)

    def is_same(sizes: dict) -> bool:
        if not explored.runs.alike(explored.sizes, sizes):
            return False
        run = explored.runs[sizes]
        return str(graph_of(run.taken, arguments(sizes), axes, explored=explored)) == str(graph)

    def is_right(sizes: dict) -> bool:
        taken = explored.runs[sizes].taken
        other = graph_of(taken, arguments(sizes), [()] * len(tensors))
        return gives_the_same(graph, other, [*with_sizes(tensors, sizes), *taken.consts])

    limit(graph, explored, conditions, is_same, is_right)
    return graph, explored.result


def _require_equal(graph: Graph, other: Graph, sizes: dict, other_sizes: dict):
    """One graph for both."""
    for a, b in zip(graph.nodes, other.nodes, strict=False):
        if str(a) != str(b):
            raise refusal(
                other_sizes,
                sizes,
                f"it needs {b.op.name}{_place(b)} with the first and {a.op.name}{_place(a)} with the second",
            )
    if len(graph.nodes) != len(other.nodes):
        raise refusal(other_sizes, sizes, "operators do something else")


def _place(node) -> str:
    return f" at {node.source}" if node.source else ""


def graph_of(
    taken: Taken,
    arguments: list,
    axes: list,
    gradients: bool = False,
    random: bool = False,
    explored: Explored | None = None,
    conditions: list[Condition] | None = None,
) -> Graph:
    """What was traced, as a graph with constants for numbers. Its inputs are the arguments and the weights.

    arguments: (dtype, shape) of each; axes: those of each whose sizes are free
    gradients: whether it is to be differentiated: what the function computed without recording passes none on
    random: whether seeds and offsets of random numbers are inputs, after the others, instead of constants
    explored: formulas of the integers and numbers that depend on free sizes
    conditions: takes what the graph relies on, in its sizes
    """
    leaves = [_describe(dtype, shape) for dtype, shape in arguments]
    leaves += [_describe(t.dtype, t.shape) for t in taken.consts]
    free = [*(set(a) for a in axes), *(set() for _ in taken.consts)]

    relied = Conditions(explored.looked_at) if explored is not None else None

    def integers(inputs: list) -> list:
        sizes = _sizes_of(inputs, explored)
        relied.begin(current_builder().graph.symbols)
        return [v if f is None else f.function(sizes) for v, f in zip(taken.ints, explored.ints, strict=True)]

    graph, _, joined = join(
        taken.calls(), leaves, taken.numbers, taken.ints, free, [False] * len(taken.ints), _stop_unrecorded if gradients else None,
        integers=None if explored is None else integers, plan_of=None if relied is None else relied.plan,
    )  # fmt: skip
    graph.outputs = [
        graph.inputs[index] if kind == LEAF else joined[index, output] for kind, index, output in taken.sites
    ]
    if explored is not None:
        _require_one_size(graph, explored)
    resolve_sizes(graph)
    formulas = explored.numbers if explored is not None else [None] * len(taken.numbers)
    constants = [
        None if random and kind in RANDOM else formula or value
        for (kind, value), formula in zip(taken.numbers, formulas, strict=True)
    ]
    graph = _with_constants(graph, len(leaves), constants, _sizes_of(graph.inputs, explored))
    resolve_sizes(graph)
    passes = [eliminate_dead, fold_constants, simplify, common_subexpressions, eliminate_dead]
    if gradients:
        passes.remove(simplify)  # it drops what stops gradients
    for step in passes:
        graph = step(graph)
    return _with_own_sizes(graph, axes, relied, conditions)


def _stop_unrecorded(value, recorded: bool):
    return value if recorded or not value.dtype.is_inexact else F.StopGradient()(value)


def _dynamic_axes(dynamic, names: list[str], tensors: list) -> list[tuple[int, ...]]:
    """The axes of each argument that may have any size."""
    if not isinstance(dynamic, dict):
        # A first axis of 1 beside longer ones is there to be repeated.
        longest = max((t.shape[0] for t in tensors if t.ndim), default=0)
        return [(0,) if dynamic and t.ndim and (t.shape[0] != 1 or longest == 1) else () for t in tensors]
    if set(dynamic) - set(names):
        raise ValueRangeError("export", f"dynamic names {sorted(set(dynamic) - set(names))}; arguments are {names}")
    found = []
    for name, t in zip(names, tensors, strict=True):
        given = dynamic.get(name, ())
        given = (given,) if isinstance(given, int) else given
        if any(not -t.ndim <= a < t.ndim for a in given):
            raise ValueRangeError("export", f"{name!r} has {t.ndim} axes; dynamic names {tuple(given)}")
        found.append(tuple(sorted(a % t.ndim for a in given)))
    return found


def _describe(dtype, shape) -> TensorSpec:
    """A row-major tensor on the CPU, as the runtime describes tensors (src/operators/describe.cc)."""
    shape = tuple(int(n) for n in shape)
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return TensorSpec("tensor", dtype.code, shape, tuple(strides), ROW_MAJOR, tuple(range(len(shape))), False, 0)


def _sizes_of(inputs: list, explored: Explored | None) -> dict[Group, Sym]:
    """The symbol of each size that is free."""
    sizes = explored.sizes if explored is not None else {}
    return {g: inputs[g.places[0][0]].shape[g.places[0][1]] for g in sizes}


def _require_one_size(graph: Graph, explored: Explored):
    """Axes that share a number must be of one size."""
    for g in explored.sizes:
        first, *others = (graph.inputs[i].shape[a] for i, a in g.places)
        for other in others:
            graph.symbols.require("==", graph.symbols.resolve(other - first))


def _refuse_random(graph: Graph):
    for node in _all_nodes(graph):
        if node.op.samples:
            where = f", at {node.source}" if node.source else ""
            raise UnsupportedError(
                "export", f"the function samples random numbers{where}, which an exported graph cannot",
                fix="call model.eval() first, so that dropout does nothing",
            )  # fmt: skip


def _all_nodes(graph: Graph):
    for node in graph.nodes:
        yield node
        if isinstance(node.op, Region):
            for inner in node.op.graphs():
                yield from _all_nodes(inner)


def _with_constants(graph: Graph, count: int, constants: list, sizes: dict[Group, Sym]) -> Graph:
    """The graph with its Python numbers as constants, or as what formulas give for the sizes; or still as inputs, where None is
    given instead."""
    result = Graph(graph.symbols, graph.name)
    _runtime.enter_trace()
    try:
        with Builder(result) as builder:
            inputs = [add_input(builder, v.type) for v in graph.inputs[:count]]
            numbers = [
                add_input(builder, v.type) if c is None else _number(c, v.dtype, sizes)
                for v, c in zip(graph.inputs[count:], constants, strict=True)
            ]
            inputs += [n for n, c in zip(numbers, constants, strict=True) if c is None]
            made = dict(zip(graph.inputs, [*inputs[:count], *numbers], strict=True))
            copies: dict = {}
            for node in graph.nodes:
                if not node.op.is_input:
                    new = builder.again(node, tuple(made[v] for v in node.inputs), copies)
                    made.update(zip(node.outputs, new.outputs, strict=True))
    finally:
        _runtime.exit_trace()
    result.inputs = inputs
    result.outputs = [made[v] for v in graph.outputs]
    return result


def _with_own_sizes(graph: Graph, axes: list, relied: Conditions | None, conditions: list | None) -> Graph:
    """The graph with no symbols but the free sizes of its arguments. conditions: takes what was relied on, in those."""
    old, new = graph.symbols, Symbols()
    sizes: dict[int, object] = {}
    for index, (kind, *place) in enumerate(old.origins):
        free = kind == "size" and place[0] < len(axes) and place[1] in axes[place[0]]
        if kind != "local":
            sizes[index] = new.new(old.hints[index], (kind, *place), not_one=True) if free else old.hints[index]
    result = Graph(new, graph.name)
    _runtime.enter_trace()
    try:
        with Builder(result) as builder:
            inputs = []
            for v in graph.inputs:
                shape = tuple(substitute(d, sizes) for d in v.shape)
                inputs.append(add_input(builder, Type(v.dtype, shape)))
            result.outputs = replay(graph, inputs, sizes)
    finally:
        _runtime.exit_trace()
    for index, size in sizes.items():  # sizes of arguments that must be equal
        if isinstance(size, Sym):
            resolved = old.resolve(old.symbol(index))
            if not isinstance(resolved, Sym):
                _, argument, axis = old.origins[index]
                raise UnsupportedError(
                    "export", f"an operator must know the size of axis {axis} of argument {argument}: it had {resolved} elements",
                    fix="fix the size: dynamic=False, or {name: axes} without this one",
                )  # fmt: skip
            new.require("==", size - substitute(resolved, sizes))
    if conditions is not None and relied is not None:
        conditions += [
            dataclasses.replace(c, expression=expression)
            for c in relied.found
            if isinstance(expression := substitute(old.resolve(c.expression), sizes), Sym)
        ]
    return result


def _number(value, dtype, sizes: dict[Group, Sym]):
    return value.value(sizes, dtype) if hasattr(value, "holds") else F.Constant(value, dtype)()


def _weights(fn, consts: list) -> dict:
    """Tensors that the function reads from around it, by their names in the module."""
    known = {}
    module = fn if isinstance(fn, Module) else getattr(fn, "__self__", None)
    if isinstance(module, Module):
        known = {id(t): name for name, t in [*module.named_parameters(), *module.named_buffers()]}
    named: dict = {}
    for i, t in enumerate(consts):
        named[unused(known.get(id(t), f"constant{i}"), named)] = t
    return named


def _output_names(structure: Structure) -> list[str]:
    paths = structure.paths()
    if len(paths) == 1:
        return ["y"]
    return [f"y{''.join(c if c.isalnum() else '_' for c in path)}".rstrip("_") for path in paths]


def to_numpy(t) -> np.ndarray:
    """A weight's elements, row-major."""
    return np.ascontiguousarray(t.detach().cpu().numpy())
