"""check_pass: a pass turns the graph of one function into the graph of another."""

from __future__ import annotations

import re

from tandem import _runtime, dtypes
from tandem.graph.ir import Builder, Graph, Type, Value
from tandem.graph.symbolic import Symbols
from tandem.ops.define import add_input
from tandem.passes.eliminate_dead import eliminate

_SHORT = {d.short: d for d in dtypes.ALL}


def trace(fn, inputs: list[str], symbolic: bool = False) -> Graph:
    """fn's graph on inputs of such types: "f32[3,4]". Symbolic: sizes other than 1 become symbols with these hints."""
    graph = Graph(Symbols(), fn.__name__)
    _runtime.enter_trace()
    try:
        with Builder(graph) as builder:
            values = []
            for position, text in enumerate(inputs):
                short, sizes = re.fullmatch(r"(\w+)\[([\d,]*)\]", text).groups()
                shape = [int(n) for n in sizes.split(",") if n]
                if symbolic:
                    new = graph.symbols.new
                    shape = [1 if n == 1 else new(n, ("size", position, i), not_one=True) for i, n in enumerate(shape)]
                values.append(add_input(builder, Type(_SHORT[short], tuple(shape))))
            result = fn(*values)
    finally:
        _runtime.exit_trace()
    graph.outputs = [result] if isinstance(result, Value) else list(result)
    return graph


def check_pass(run, before, expected, inputs: list[str]) -> Graph:
    """run(graph of before) must be the graph of expected, but for the order of nodes that do not depend on each other."""
    graph = trace(before, inputs)
    text = str(graph)
    result = run(graph)
    assert str(graph) == text, "the pass changed its input"
    wanted = eliminate(trace(expected, inputs))
    assert shape_of(eliminate(result)) == shape_of(wanted), f"got\n{result}\nexpected\n{wanted}"
    return result


def shape_of(graph: Graph) -> list:
    """The graph as nested tuples: equal for graphs that differ in the order of independent nodes only."""
    made: dict[Value, tuple] = {}
    for node in graph.nodes:
        place = tuple(tuple(made[v] for v in n.outputs) for n in node.control), str(node.device)
        for v in node.outputs:
            made[v] = (repr(node.op), v.index, place, *(made[i] for i in node.inputs))
    return [made[v] for v in graph.outputs] + [(position, made[v]) for position, v in graph.mutations]
