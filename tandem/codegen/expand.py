"""expand: operators that are made of others become these."""

from __future__ import annotations

import functools

from tandem import _runtime
from tandem.graph.ir import Builder, Graph, Node, Value, source_scope
from tandem.ops.define import add_input


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
    while any(formula(node) is not None for node in graph.nodes):  # those may hold others
        graph, made = _expand_once(graph, formula)
        total = {old: made[new] for old, new in total.items()} if total else made
    return graph, total


def _expand_once(graph: Graph, formula) -> tuple[Graph, dict[Value, Value]]:
    result = Graph(graph.symbols, graph.name)
    made: dict[Value, Value] = {}
    copies: dict[Node, tuple[Node, ...]] = {}
    _runtime.enter_trace()
    try:
        with Builder(result) as builder:
            for value in graph.inputs:
                made[value] = add_input(builder, value.type)
            for node in graph.nodes:
                if node.op.is_input:
                    continue
                inputs = tuple(made[v] for v in node.inputs)
                with source_scope(node.source):
                    expands = formula(node)
                    if expands is None:
                        outputs = builder.again(node, inputs, copies).outputs
                    else:
                        with builder.in_place_of(node, copies):
                            outputs = expands(*inputs)
                if isinstance(outputs, Value):
                    outputs = (outputs,)
                if expands is not None:
                    copies[node] = tuple(dict.fromkeys(v.node for v in outputs))
                made.update(zip(node.outputs, outputs, strict=True))
    finally:
        _runtime.exit_trace()
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
