"""expand: operators that are made of others become these."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

from tandem import _runtime
from tandem.graph.ir import Builder, Graph, Node, Value, source_scope


def expand(graph: Graph, choose=None, kind: str = "") -> tuple[Graph, dict[Value, Value]]:
    """The graph without operators that are made of others (Op.made_of), on targets of a kind, and what stands for each of its
    values (empty where nothing changed).

    choose(node): what else to write out: None, or a function of the operator and its inputs.
    """

    def formula(node):
        own = node.op.made_of(kind, node.inputs)
        if own is not None or choose is None:
            return own
        chosen = choose(node)
        return None if chosen is None else functools.partial(chosen, node.op)

    total: dict[Value, Value] = {}
    settled: set[Node] = set()  # what has no formula stays so: nodes never change
    while True:  # formulas may hold operators that have one
        found = {}
        for node in graph.nodes:
            if node not in settled:
                written = formula(node)
                if written is None:
                    settled.add(node)
                else:
                    found[node] = written
        if not found:
            return graph, total
        graph, made = _expand_once(graph, found)
        total = {old: made[new] for old, new in total.items()} if total else made


def _expand_once(graph: Graph, formulas: dict[Node, Callable]) -> tuple[Graph, dict[Value, Value]]:
    result = Graph(graph.symbols, graph.name)
    made: dict[Value, Value] = {}
    copies: dict[Node, tuple[Node, ...]] = {}
    _runtime.enter_trace()
    try:
        with Builder(result) as builder, source_scope(None) as scope:
            for node in graph.nodes:
                formula = formulas.get(node)
                inputs = tuple([made[v] for v in node.inputs])
                if node.op.is_input:
                    outputs = builder.adopt(node).outputs
                elif formula is not None:
                    scope.set(node.source)
                    with builder.in_place_of(node, copies):
                        outputs = formula(*inputs)
                    if isinstance(outputs, Value):
                        outputs = (outputs,)
                    copies[node] = tuple(dict.fromkeys(v.node for v in outputs))
                elif not node.control and all(map(operator.is_, inputs, node.inputs)):
                    new = builder.adopt(node)
                    copies[node] = (new,)
                    outputs = new.outputs
                else:
                    scope.set(node.source)
                    outputs = builder.again(node, inputs, copies).outputs
                made.update(zip(node.outputs, outputs, strict=True))
    finally:
        _runtime.exit_trace()
    result.inputs = list(graph.inputs)
    result.outputs = [made[v] for v in graph.outputs]
    result.mutations = [(position, made[v]) for position, v in graph.mutations]
    return result, made


def without_unused(graph: Graph, saved: list[Value]) -> Graph:
    """The graph without nodes that nothing needs: formulas may take over from others."""
    needed = set()
    stack = [v.node for v in [*graph.roots(), *saved]]
    stack += [n for n in graph.nodes if n.op.effect or n.op.stays or n.op.is_input]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack.extend(v.node for v in node.inputs)
            stack.extend(node.control)
    if len(needed) == len(graph.nodes):
        return graph
    result = Graph(graph.symbols, graph.name)
    result.inputs, result.outputs, result.mutations = graph.inputs, graph.outputs, graph.mutations
    result.nodes = [n for n in graph.nodes if n in needed]
    return result
