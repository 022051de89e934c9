"""A function or a module as a graph that stands by itself: arguments and weights are its inputs, numbers are constants in it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

import tandem.ops as F
from tandem import _runtime
from tandem.control.body import RANDOM, Taken, spec, take_down
from tandem.errors import TandemError, UnsupportedError, ValueRangeError, warn
from tandem.graph.ir import Builder, Graph, Type, replay
from tandem.graph.symbolic import Sym, Symbols, substitute
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

# Note [Sizes by primes]
# While the function runs, an axis of any size has a large prime for its size. So whatever the function makes of sizes in Python,
# integers for shapes (the batch times the length) and numbers to compute with (a sum divided by the batch), is known from what is
# constant: it is a multiple of that prime. Axes of equal sizes, at the same place, share one. Where the function cannot be run with
# a large one (a table of positions ends), a prime near the example's size stands for it.
_PRIMES = (7919, 7907, 7901, 7883, 7879, 7877, 7873, 7867)


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
    if len(names) != len(tensors):
        raise ValueRangeError("export", f"{len(names)} names were given for {len(tensors)} arguments")
    axes = _dynamic_axes(dynamic, names, tensors)
    try:
        result, shapes = _run(fn, tensors, axes)
    except _FAILURES:  # of Python too: `rows, columns = edges` unpacks two
        if dynamic is not True:
            raise
        axes = [() for _ in tensors]
        result, shapes = _run(fn, tensors, axes)
        warn("export: the function runs with the sizes of its arguments only, so these are fixed\n"
             "  fix: name the axes that may change: dynamic={name: axes}", UserWarning)  # fmt: skip
    graph = graph_of(result.taken, [(t.dtype, s) for t, s in zip(tensors, shapes, strict=True)], axes)
    _refuse_random(graph)
    return Exported(graph, names, _weights(fn, result.taken.consts), _output_names(result.structure), result.structure)


def graph_of(taken: Taken, arguments: list, axes: list, gradients: bool = False, random: bool = False) -> Graph:
    """What was traced, as a graph with constants for numbers. Its inputs are the arguments and the weights.

    arguments: (dtype, shape) of each; axes: those of each whose sizes are free
    gradients: whether it is to be differentiated: what the function computed without recording passes none on
    random: whether seeds and offsets of random numbers are inputs, after the others, instead of constants
    """
    leaves = [_describe(dtype, shape) for dtype, shape in arguments]
    leaves += [_describe(t.dtype, t.shape) for t in taken.consts]
    free = [*(set(a) for a in axes), *(set() for _ in taken.consts)]
    numbers = {shape[a] for (_, shape), some in zip(arguments, axes, strict=True) for a in some}
    free_ints = [v > 1 and any(v % n == 0 for n in numbers) for v in taken.ints]
    graph, _, joined = join(
        taken.calls(), leaves, taken.numbers, taken.ints, free, free_ints, _stop_unrecorded if gradients else None
    )
    graph.outputs = [
        graph.inputs[index] if kind == LEAF else joined[index, output] for kind, index, output in taken.sites
    ]
    sizes = _free_sizes(graph.symbols, leaves, axes)
    _relate_integers(graph.symbols, sizes)
    resolve_sizes(graph)
    constants = [None if random and kind in RANDOM else (value,) for kind, value in taken.numbers]
    graph = _with_constants(graph, len(leaves), constants, sizes)
    resolve_sizes(graph)
    passes = [eliminate_dead, fold_constants, simplify, common_subexpressions, eliminate_dead]
    if gradients:
        passes.remove(simplify)  # it drops what stops gradients
    for step in passes:
        graph = step(graph)
    return _with_own_sizes(graph, axes)


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
        if any(not -t.ndim <= a < t.ndim for a in given):
            raise ValueRangeError("export", f"{name!r} has {t.ndim} axes; dynamic names {tuple(given)}")
        found.append(tuple(sorted(a % t.ndim for a in given)))
    return found


_FAILURES = TandemError, IndexError, ValueError


def _run(fn, tensors: list, axes: list[tuple[int, ...]]):
    """(what the function did, the shapes that it was given); see Note [Sizes by primes]."""
    groups = list(dict.fromkeys((a, t.shape[a]) for t, free in zip(tensors, axes, strict=True) for a in free))
    if len(groups) > len(_PRIMES):
        raise ValueRangeError(
            "export", f"{len(groups)} axes of different sizes are dynamic; at most {len(_PRIMES)} may be"
        )
    tries = [dict(zip(groups, _PRIMES, strict=False))]
    if any(axis for axis, _ in groups):
        tries.append({g: p if g[0] == 0 else _prime_near(g[1]) for g, p in tries[0].items()})
    before = _runtime.set_grad_enabled(False)
    try:
        for attempt, sizes in enumerate(tries):
            shapes = [
                [sizes[a, n] if a in free else n for a, n in enumerate(t.shape)]
                for t, free in zip(tensors, axes, strict=True)
            ]
            try:
                return take_down(
                    "export", fn, [spec(t, False, s) for t, s in zip(tensors, shapes, strict=True)]
                ), shapes
            except _FAILURES:
                if attempt == len(tries) - 1:
                    raise
    finally:
        _runtime.set_grad_enabled(before)


def _prime_near(n: int) -> int:
    """The largest prime up to n; 3 at least."""
    n = max(n, 3)
    while any(n % d == 0 for d in range(2, math.isqrt(n) + 1)):
        n -= 1
    return n


def _describe(dtype, shape) -> TensorSpec:
    """A row-major tensor on the CPU, as the runtime describes tensors (src/operators/describe.cc)."""
    shape = tuple(int(n) for n in shape)
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return TensorSpec("tensor", dtype.code, shape, tuple(strides), ROW_MAJOR, tuple(range(len(shape))), False, 0)


def _free_sizes(symbols, leaves: list, axes: list) -> dict[int, Sym]:
    """The symbol of each free size, by the number that stood for it, the largest first."""
    found = {}
    for index, (kind, *place) in enumerate(symbols.origins):
        if kind == "size" and place[0] < len(axes) and place[1] in axes[place[0]]:
            found.setdefault(leaves[place[0]].shape[place[1]], _symbol(symbols, index))
    return dict(sorted(found.items(), reverse=True))


def _relate_integers(symbols, sizes: dict[int, Sym]):
    """Integers that are made of free sizes are those: requiring it teaches it."""
    for index, (kind, *_) in enumerate(symbols.origins):
        if kind == "int":
            made_of = _as_size(symbols.hints[index], sizes)
            if made_of is not None:
                symbols.require("==", symbols.resolve(_symbol(symbols, index) - made_of))


def _as_size(value, sizes: dict[int, Sym]):
    """A number as a product of free sizes and an integer; None if no free size is in it."""
    if isinstance(value, (bool, complex)) or value != value or value in (float("inf"), float("-inf"), 0) or value % 1:
        return None
    value, product = int(value), None
    for n, symbol in sizes.items():
        while value % n == 0:
            value, product = value // n, symbol if product is None else product * symbol
    return None if product is None else product * value


def _symbol(symbols, index: int) -> Sym:
    return symbols._make({(("sym", index),): 1})


def _refuse_random(graph: Graph):
    for node in _all_nodes(graph):
        if node.op.samples:
            where = f", at {node.source}" if node.source else ""
            raise UnsupportedError(
                "export", f"the function draws random numbers{where}, which an exported graph cannot",
                fix="call model.eval() first, so that dropout does nothing",
            )  # fmt: skip


def _all_nodes(graph: Graph):
    for node in graph.nodes:
        yield node
        if isinstance(node.op, Region):
            for inner in node.op.graphs():
                yield from _all_nodes(inner)


def _with_constants(graph: Graph, count: int, constants: list, sizes: dict[int, Sym]) -> Graph:
    """The graph with its Python numbers as constants, or as sizes where they are made of those; or still as inputs, where None is
    given instead of a (number,)."""
    result = Graph(graph.symbols, graph.name)
    _runtime.enter_trace()
    try:
        with Builder(result) as builder:
            inputs = [add_input(builder, v.type) for v in graph.inputs[:count]]
            numbers = [
                add_input(builder, v.type) if c is None else _number(c[0], v.dtype, sizes)
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


def _with_own_sizes(graph: Graph, axes: list) -> Graph:
    """The graph with no symbols but the free sizes of its arguments."""
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
            resolved = old.resolve(_symbol(old, index))
            new.require("==", size - substitute(resolved, sizes))
    return result


def _number(value, dtype, sizes: dict[int, Sym]):
    size = _as_size(value, sizes)
    return F.Constant(value, dtype)() if size is None else F.Size(size, dtype)()


def _weights(fn, consts: list) -> dict:
    """Tensors that the function reads from around it, by their names in the module."""
    known = {}
    module = fn if isinstance(fn, Module) else getattr(fn, "__self__", None)
    if isinstance(module, Module):
        known = {id(t): name for name, t in [*module.named_parameters(), *module.named_buffers()]}
    named: dict = {}
    for i, t in enumerate(consts):
        name = known.get(id(t), f"constant{i}")
        while name in named:
            name += "_"
        named[name] = t
    return named


def _output_names(structure: Structure) -> list[str]:
    paths = structure.paths()
    if len(paths) == 1:
        return ["y"]
    return [f"y{''.join(c if c.isalnum() else '_' for c in path)}".rstrip("_") for path in paths]


def to_numpy(t) -> np.ndarray:
    """A weight's elements, row-major."""
    return np.ascontiguousarray(t.detach().cpu().numpy())
