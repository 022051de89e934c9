"""What depends on weights alone is computed once, when a graph is exported."""

from __future__ import annotations

import dataclasses

import tandem.ops as F
from tandem import _runtime
from tandem.export.trace import Exported
from tandem.graph.ir import Builder, Graph, Value, has_symbols
from tandem.graph.symbolic import Symbols
from tandem.ops.define import add_input
from tandem.ops.movement import Expand
from tandem.ops.region import Region
from tandem.passes.eliminate_dead import eliminate_dead
from tandem.passes.fold_constants import fold_constants
from tandem.passes.fold_conv_affine import fold_affine
from tandem.passes.simplify import simplify


def fold_weights(exported: Exported) -> Exported:
    """The same function with fewer operators: batch norm goes into the convolution before it, what is computed from weights alone
    becomes a weight, and a weight of one element a constant."""
    exported = _with_constants(exported)
    graph = eliminate_dead(fold_affine(exported.graph, constant_weights=True))
    count = len(exported.arguments)
    fixed = _fixed(graph, count)
    wanted = _read_by_others(graph, fixed)
    names = dict(zip(graph.inputs[count:], exported.weights, strict=True))
    weights = {v: exported.weights[names[v]] for v in wanted if v in names}
    made = [v for v in wanted if v not in names]
    if made:
        weights.update(zip(made, _values(graph, count, made, fixed, list(exported.weights.values())), strict=True))
    taken = set(exported.weights)
    for i, v in enumerate(made):
        name = f"{v.op.name}_of_weights_{i}"
        while name in taken:
            name += "_"
        taken.add(name)
        names[v] = name
    graph = _with_inputs(graph, count, list(weights))
    return _with_constants(
        dataclasses.replace(exported, graph=graph, weights={names[v]: t for v, t in weights.items()})
    )


def _with_constants(exported: Exported) -> Exported:
    """Weights of one element are constants. A NaN stays a weight: it is not equal to itself, as equal constants are."""
    graph, count = exported.graph, len(exported.arguments)
    weights = dict(zip(graph.inputs[count:], exported.weights.items(), strict=True))
    numbers = {v: t.item() for v, (_, t) in weights.items() if t.numel() == 1 and not t.dtype.is_complex}
    constants = {v: number for v, number in numbers.items() if number == number}
    if not constants:
        return exported
    kept = {v: named for v, named in weights.items() if v not in constants}
    graph = _with_inputs(graph, count, list(kept), constants=constants)
    for step in (fold_constants, simplify, eliminate_dead):
        graph = step(graph)
    return dataclasses.replace(exported, graph=graph, weights=dict(kept.values()))


def _fixed(graph: Graph, count: int) -> set[Value]:
    """Values that no argument has a part in."""
    fixed = set(graph.inputs[count:])
    for node in graph.nodes:
        plain = not node.op.effect and not isinstance(node.op, Region) and not node.control
        if not node.op.is_input and plain and all(v in fixed for v in node.inputs):
            if not any(has_symbols(v.shape) for v in node.outputs) and not _depends_on_sizes(node.op):
                fixed.update(node.outputs)
    return fixed


def _depends_on_sizes(op) -> bool:
    return any(has_symbols(f if isinstance(f, tuple) else (f,)) for f in (getattr(op, name) for name in op._fields))


def _read_by_others(graph: Graph, fixed: set[Value]) -> list[Value]:
    """Fixed values that something else reads; of expanded and plain constants, what they are made of."""
    wanted: dict[Value, None] = {}
    readers = [v for n in graph.nodes if not all(o in fixed for o in n.outputs) for v in n.inputs]
    for value in [*readers, *graph.outputs]:
        while value in fixed and isinstance(value.op, Expand):
            value = value.node.inputs[0]
        if value in fixed and _rests_on_a_weight(value):
            wanted[value] = None
    return list(wanted)


def _rests_on_a_weight(value: Value) -> bool:
    return value.op.is_input or any(_rests_on_a_weight(v) for v in value.node.inputs)


def _values(graph: Graph, count: int, wanted: list[Value], fixed: set[Value], weights: list) -> list:
    part = Graph(graph.symbols, "weights")
    part.inputs, part.outputs = list(graph.inputs), list(wanted)
    part.nodes = [n for n in graph.nodes if n.op.is_input or all(v in fixed for v in n.outputs)]
    part = _with_inputs(eliminate_dead(part), 0, graph.inputs[count:], Symbols())  # none of their sizes is free
    return part.run(*[w.detach() for w in weights])


def _with_inputs(
    graph: Graph, count: int, weights: list[Value], symbols: Symbols | None = None, constants: dict | None = None
) -> Graph:
    """The graph on its first inputs and, as inputs too, these values of it. `constants`: the elements of other values."""
    result = Graph(symbols or graph.symbols, graph.name)
    _runtime.enter_trace()
    try:
        with Builder(result) as builder:
            kept = [*graph.inputs[:count], *weights]
            made = {v: add_input(builder, v.type) for v in kept}
            made |= {v: _constant(number, v) for v, number in (constants or {}).items()}
            copies: dict = {}
            for node in graph.nodes:
                if not node.op.is_input and not all(v in made for v in node.outputs):
                    if all(v in made for v in node.inputs):
                        new = builder.again(node, tuple(made[v] for v in node.inputs), copies)
                        for old, fresh in zip(node.outputs, new.outputs, strict=True):
                            made.setdefault(old, fresh)
    finally:
        _runtime.exit_trace()
    result.outputs = [made[v] for v in graph.outputs]
    return eliminate_dead(result)


def _constant(number, like: Value) -> Value:
    made = F.Constant(number, like.dtype)()
    return F.Reshape(like.shape)(made) if like.ndim else made
