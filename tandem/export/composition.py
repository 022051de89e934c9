"""Operators as what they are made of, for writers that have no counterpart of them."""

from __future__ import annotations

from tandem import _runtime
from tandem.graph.ir import Builder, Graph, Node
from tandem.ops.define import add_input

KIND = "file"  # of target: it has no routines


def composition(node: Node, symbols) -> Graph:
    """A graph of what an operator that is made of others (`Op.made_of`) computes from operands of these types."""
    graph = Graph(symbols, node.op.name)
    _runtime.enter_trace()
    try:
        with Builder(graph) as builder:
            inputs = [add_input(builder, v.type) for v in node.inputs]
            made = node.op.made_of(KIND, node.inputs)(*inputs)
    finally:
        _runtime.exit_trace()
    graph.inputs = inputs
    graph.outputs = list(made) if isinstance(made, (tuple, list)) else [made]
    return graph
