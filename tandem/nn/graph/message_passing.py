"""Message passing: what neighbours send, what a node makes of it."""

from __future__ import annotations

import inspect

import tandem.ops as F
from tandem.errors import ValueRangeError
from tandem.nn.graph.edges import Edges, edges_of
from tandem.nn.module import Module
from tandem.ops.combine import segment_reduce
from tandem.sparse.structure import Structure

AGGREGATIONS = ("sum", "add", "mean", "max", "min", "prod")


def aggregate(messages, edges: Edges, how: str = "sum"):
    """messages: (m, *r), one for every edge in the order of `edges` -> (nodes, *r): sums, means, maxima, minima or products of
    those that arrive at a node; 0 where none do."""
    return _aggregate(messages, edges, edges.structure, how)


def _aggregate(messages, edges: Edges, structure: Structure, how: str):
    """The same, with messages in the order that the structure's entries have."""
    if how not in AGGREGATIONS:
        raise ValueRangeError("aggregate", f"how is {how!r}; it must be one of {', '.join(AGGREGATIONS)}")
    if how in ("sum", "add"):
        return structure.sum_rows(messages)
    count = F.reshape(edges.degrees(messages.dtype), (-1, *(1,) * (messages.ndim - 1)))
    if how == "mean":
        return structure.sum_rows(messages) / F.clip(count, 1, None)
    if structure is not edges.structure:
        messages = F.index_select(messages, 0, structure.order)
    made = segment_reduce(messages, how, offsets=structure.start, unsafe=True)
    return made if how == "prod" else F.where(F.greater(count, 0), made, 0)


def neighbours(x, edges: Edges, weights=None, how: str = "sum"):
    """x: (sources, *r), weights: (m) or None -> (targets, *r): what the neighbours of a node have, without a copy for every edge
    where sums or means are wanted."""
    if how not in ("sum", "add", "mean") or not x.dtype.is_floating:
        messages = edges.structure.of_columns(x)
        if weights is not None:
            messages = messages * F.reshape(weights, (-1, *(1,) * (x.ndim - 1)))
        return aggregate(messages, edges, how)
    wide = F.reshape(x, (x.shape[0], 1, -1))
    total = edges.structure.matmul(None if weights is None else F.reshape(weights, (-1, 1)), wide)
    if how == "mean":
        total = total / F.reshape(F.clip(edges.degrees(x.dtype), 1, None), (-1, 1, 1))
    return F.reshape(total, (edges.shape[0], *x.shape[1:]))


class MessagePassing(Module):
    """Base of layers over graphs. Define message, and perhaps update; forward calls propagate.

    aggr: "sum", "mean", "max", "min" or "prod" of the messages that arrive at a node. propagate hands tensors of nodes to message
    by their names: x_j is what the source of every edge has, x_i what its target has, in the order of edge_index (or of the Edges
    that are given in its place); other arguments are handed on as they are.

    >>> class Largest(td.nn.MessagePassing):
    ...     def __init__(self):
    ...         super().__init__("max")
    ...     def forward(self, x, edge_index):
    ...         return self.propagate(edge_index, x=x)
    ...     def message(self, x_j):
    ...         return x_j
    >>> Largest()(td.tensor([[1.0], [5.0], [3.0]]), td.tensor([[1, 2], [0, 0]]))
    tensor([[5.],
            [0.],
            [0.]])
    """

    def __init__(self, aggr: str = "sum"):
        super().__init__()
        if aggr not in AGGREGATIONS:
            raise ValueRangeError("MessagePassing", f"aggr is {aggr!r}; it must be one of {', '.join(AGGREGATIONS)}")
        self.aggr = aggr

    def message(self, x_j):
        """What is sent along every edge: (m, *r)."""
        return x_j

    def update(self, aggregated):
        """What a node makes of the messages that arrive: (nodes, *r)."""
        return aggregated

    def propagate(self, edge_index, size: tuple[int, int] | None = None, **features):
        """Sends, aggregates and updates. size: numbers of nodes (sources, targets), if they differ or no tensor tells."""
        names = list(inspect.signature(self.message).parameters)
        nodes = {n[:-2] for n in names if n.endswith(("_i", "_j"))}
        if size is None and not isinstance(edge_index, Edges):
            known = next((features[n] for n in nodes if features.get(n) is not None), None)
            if known is None:
                raise ValueRangeError(
                    "propagate", "no tensor of nodes is among the features", fix="pass size=(sources, targets)"
                )
            size = tuple(t.shape[0] for t in known) if isinstance(known, tuple) else (known.shape[0],) * 2
        listed = isinstance(edge_index, Edges)
        edges = edge_index if listed else edges_of(edge_index, *size)
        structure = edges.structure if listed else edges.as_given()
        given = {}
        for name in names:
            base, side = (name[:-2], name[-2:]) if name.endswith(("_i", "_j")) else (name, "")
            value = features[base] if side or base in features else None
            if side:
                value = value[side == "_i"] if isinstance(value, tuple) else value
                value = structure.of_rows(value) if side == "_i" else structure.of_columns(value)
            given[name] = value
        return self.update(_aggregate(self.message(**given), edges, structure, self.aggr))
