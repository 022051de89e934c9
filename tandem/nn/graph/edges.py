"""Edges of a graph, prepared once for all layers and steps that use them."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.autograd.modes import no_grad
from tandem.errors import ShapeError
from tandem.ops.edges import group_index
from tandem.sparse.structure import Structure, at_once

Tensor = _runtime.Tensor


class Edges:
    """Edges listed by the node that they lead to, so that what arrives at a node is summed without scattering.

    edge_index: (2, m), from edge_index[0] to edge_index[1]; sources, targets: numbers of nodes on either side; loops: one more edge
    from every node to itself. Layers make it of an edge_index by themselves and keep it beside that tensor, until it is written to.

    source, target: (m) nodes; order: (m) the number that each edge has in edge_index, m and more for loops
    structure: for products (tandem/sparse/structure.py): entry e is edge e of this list, in row target[e] and column source[e]

    >>> edges = td.nn.graph.Edges(td.tensor([[0, 1, 2], [2, 0, 0]]), 3)
    >>> edges.target, edges.source
    (tensor([0, 0, 2]), tensor([1, 2, 0]))
    """

    def __init__(self, edge_index, sources: int, targets: int | None = None, loops: bool = False):
        if edge_index.ndim != 2 or edge_index.shape[0] != 2 or not edge_index.dtype.is_integer:
            raise ShapeError(
                "Edges",
                f"edge_index is {edge_index.dtype} of shape {tuple(edge_index.shape)}; it must be integers (2, m)",
            )
        targets = sources if targets is None else targets
        self.shape = targets, sources
        self.loops = loops
        self._factors: dict = {}
        with no_grad():
            edge_index = F.astype(edge_index, dtypes.int64, copy=False)
            source, target = edge_index[0], edge_index[1]
            self.given = source.shape[0]
            if loops:
                own = F.arange(min(sources, targets), device=edge_index.device)
                source, target = F.concat([source, own], 0), F.concat([target, own], 0)
            start, self.order = group_index(target, targets)
            self.source, self.target = F.index_select(source, 0, self.order), F.index_select(target, 0, self.order)
            start_t, order_t = group_index(self.source, sources)
            numbers = F.arange(source.shape[0], device=edge_index.device)
            self.structure = Structure(
                self.target, self.source, start, numbers, self.source, start_t, order_t,
                F.index_select(self.target, 0, order_t),
            )  # fmt: skip

    def __len__(self) -> int:
        return self.source.shape[0]

    def degrees(self, dtype=dtypes.float32):
        """How many edges lead to each node."""
        return F.astype(F.diff(self.structure.start), dtype)

    def listed(self, values, loop_value=None):
        """What is given for every edge of edge_index, (m, *r), in the order of this list. loop_value: for loops, "mean" of what
        arrives at the node, or a number."""
        if values.shape[0] != self.given:
            raise ShapeError("Edges", f"there are {self.given} edges and {tuple(values.shape)} values for them")
        if not self.loops:
            return F.index_select(values, 0, self.order)
        n = len(self) - self.given
        if loop_value == "mean":
            owner = F.index_select(self.target, 0, F.argsort(self.order))[: self.given]
            zeros = F.full((n, *values.shape[1:]), 0, dtype=values.dtype, device=values.device)
            added = F.index_add(zeros, 0, owner, values)
            counts = F.clip(self.degrees(values.dtype) - 1, 1, None)
            more = added / F.reshape(counts, (n, *(1,) * (values.ndim - 1)))
        else:
            more = F.full((n, *values.shape[1:]), loop_value, dtype=values.dtype, device=values.device)
        return F.index_select(F.concat([values, more], 0), 0, self.order)

    def symmetric_weights(self, values=None, dtype=dtypes.float32):
        """(m): the weight of every edge over the roots of the degrees of its ends (Kipf and Welling, 2017); ones by default."""
        if values is None and dtype in self._factors:
            return self._factors[dtype]
        degree = self.degrees(dtype) if values is None else self.structure.sum_rows(values)
        root = F.where(F.greater(degree, 0), F.rsqrt(degree), 0)
        weights = self.structure.of_columns(root) * self.structure.of_rows(root)
        if values is not None:
            return weights * values
        if not _runtime.pending(weights):
            self._factors[dtype] = weights
        return weights


def edges_of(edge_index, sources: int, targets: int | None = None, loops: bool = False) -> Edges:
    """The edges of an edge_index, made once for a tensor and its contents; an Edges object is taken as it is."""
    if isinstance(edge_index, Edges):
        return edge_index
    if not isinstance(edge_index, Tensor) or _runtime.pending(edge_index):
        return Edges(edge_index, sources, targets, loops)
    known = edge_index.__dict__.setdefault("_edges", {})
    key = sources, targets, loops
    found = known.get(key)
    if found is None or found[0] != edge_index._version:
        with at_once(edge_index):
            found = known[key] = edge_index._version, Edges(edge_index, sources, targets, loops)
    return found[1]
