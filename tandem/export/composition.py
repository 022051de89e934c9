"""Operators as what they are made of, for writers that have no counterpart of them."""

from __future__ import annotations

from collections.abc import Callable

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.graph.ir import Builder, Graph, Node
from tandem.ops.cumulative import Cumulative, RunningExtremum
from tandem.ops.define import add_input

KIND = "file"  # of target: it has no routines


def made_of(node: Node) -> Callable | None:
    """What builds a node's results from other operators; None where nothing does."""
    if isinstance(node.op, RunningExtremum):
        return lambda x: _running_extremum(node.op, x)
    return node.op.made_of(KIND, node.inputs)


def _running_extremum(op: RunningExtremum, x):
    """Positions are the running maximum of those at which the values are reached."""
    values = Cumulative(op.axis, "min" if op.smallest else "max")(x)
    reached = F.logical_or(F.equal(x, values), F.not_equal(x, x))
    at = F.Iota(x.shape, op.axis, dtypes.int64)()
    return values, Cumulative(op.axis, "max")(F.where(reached, at, 0))


def composition(node: Node, symbols) -> Graph:
    """A graph of what a node that is made of others computes from operands of these types."""
    graph = Graph(symbols, node.op.name)
    _runtime.enter_trace()
    try:
        with Builder(graph) as builder:
            inputs = [add_input(builder, v.type) for v in node.inputs]
            made = made_of(node)(*inputs)
    finally:
        _runtime.exit_trace()
    graph.inputs = inputs
    graph.outputs = list(made) if isinstance(made, (tuple, list)) else [made]
    return graph
