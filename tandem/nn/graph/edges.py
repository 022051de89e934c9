"""Edges of a graph, prepared once for all layers and steps that use them."""

# Note [Loops]
# A layer that gives every node an edge to itself gives it one, also where edge_index has such edges already, as PyG's do. How many
# it has is data, and lists have one length: so the given ones stay in the list, `replaced` says which they are, and those who
# use the list let them count for nothing: a weight of zero, a score of -inf. `replaced` is None where there are known to be
# none.

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.autograd.modes import no_grad
from tandem.errors import ShapeError
from tandem.ops.define import as_tensor
from tandem.ops.edges import group_index
from tandem.sparse.structure import Structure, at_once

Tensor = _runtime.Tensor


class Edges:
    """Edges listed by the node that they lead to, so that what arrives at a node is summed without scattering.

    edge_index: (2, m), from edge_index[0] to edge_index[1]; sources, targets: numbers of nodes on either side; loops: every node
    has one edge to itself (Note [Loops]). Layers make it of an edge_index by themselves and keep it beside that tensor, until
    it is written to.

    source, target: (m) nodes; order: (m) the number that each edge has in edge_index, m and more for loops
    structure: for products (tandem/sparse/structure.py): entry e is edge e of this list, in row target[e] and column source[e]

    >>> edges = td.nn.graph.Edges(td.tensor([[0, 1, 2], [2, 0, 0]]), 3)
    >>> edges.target, edges.source
    (tensor([0, 0, 2]), tensor([1, 2, 0]))
    """

    def __init__(self, edge_index, sources: int, targets: int | None = None, loops: bool = False):
        edge_index = as_tensor("Edges", "edge_index", edge_index)
        if edge_index.ndim != 2 or edge_index.shape[0] != 2 or not edge_index.dtype.is_integer:
            raise ShapeError(
                "Edges",
                f"edge_index is {edge_index.dtype} of shape {tuple(edge_index.shape)}; it must be integers (2, m)",
            )
        targets = sources if targets is None else targets
        self.shape = targets, sources
        self.loops = loops
        self._factors: dict = {}
        self._as_given: Structure | None = None
        with no_grad():
            edge_index = F.astype(edge_index, dtypes.int64, copy=False)
            source, target = edge_index[0], edge_index[1]
            self.given = source.shape[0]
            self.replaced = self._own(source, target) if loops else None
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

    @staticmethod
    def _own(source, target):
        """Which edges lead from a node to itself; None where that can be seen and there are none."""
        own = F.equal(source, target)
        seen = isinstance(own, Tensor) and not _runtime.pending(own)
        return None if seen and not F.any(own).item() else own

    def replaced_here(self):
        """The same in the order of this list."""
        more = F.full((len(self) - self.given,), False, dtype=dtypes.bool_, device=self.replaced.device)
        return F.index_select(F.concat([self.replaced, more], 0), 0, self.order)

    def as_given(self) -> Structure:
        """The structure with edges in the order of edge_index: entry e is edge e of that."""
        if self._as_given is None:
            s = self.structure
            with no_grad():
                place = F.argsort(self.order)
                self._as_given = Structure(
                    F.index_select(s.row, 0, place), F.index_select(s.column, 0, place), s.start, self.order, s.reads, s.start_t,
                    F.index_select(self.order, 0, s.order_t), s.reads_t,
                )  # fmt: skip
        return self._as_given

    def __len__(self) -> int:
        return self.source.shape[0]

    def degrees(self, dtype=dtypes.float32):
        """How many edges lead to each node."""
        return F.astype(F.diff(self.structure.start), dtype)

    def listed(self, values, loop_value=None, weights: bool = False):
        """What is given for every edge of edge_index, (m, *r), in the order of this list. loop_value: for loops, "mean" of what
        arrives at the node from others, or a number. weights: loops that are given keep their value, and the edges that they
        stand for get zeros."""
        if values.shape[0] != self.given:
            raise ShapeError("Edges", f"there are {self.given} edges and {tuple(values.shape)} values for them")
        if not self.loops:
            return F.index_select(values, 0, self.order)
        n, axes = len(self) - self.given, (1,) * (values.ndim - 1)
        own = None if self.replaced is None else F.reshape(self.replaced, (self.given, *axes))
        of_others = values if own is None else F.where(own, 0, values)
        if loop_value == "mean":
            owner = self._targets_given()
            zeros = F.full((n, *values.shape[1:]), 0, dtype=values.dtype, device=values.device)
            counts = self.degrees(values.dtype) - 1
            if own is not None:
                counts = counts - F.index_add(
                    F.full((n,), 0, dtype=values.dtype, device=values.device),
                    0,
                    owner,
                    F.astype(self.replaced, values.dtype),
                )
            counts = F.reshape(F.clip(counts, 1, None), (n, *axes))
            more = F.index_add(zeros, 0, owner, of_others) / counts
        else:
            more = F.full((n, *values.shape[1:]), loop_value, dtype=values.dtype, device=values.device)
            if weights and own is not None:  # of several, the last
                none = F.full((n,), -1, dtype=dtypes.int64, device=values.device)
                numbers = F.where(self.replaced, F.arange(self.given, device=values.device), -1)
                last = F.index_reduce(none, 0, self._targets_given(), numbers, "amax")
                kept = F.index_select(values, 0, F.clip(last, 0, None)) if self.given else more
                more = F.where(F.reshape(F.greater_equal(last, 0), (n, *axes)), kept, more)
        return F.index_select(F.concat([of_others if weights else values, more], 0), 0, self.order)

    def _targets_given(self):
        return F.index_select(self.target, 0, F.argsort(self.order))[: self.given]

    def ones(self, dtype=dtypes.float32):
        """(m): a weight for every edge of this list, 1 where it counts; None where all do."""
        if self.replaced is None:
            return None
        return F.astype(F.logical_not(self.replaced_here()), dtype)

    def symmetric_weights(self, values=None, dtype=dtypes.float32):
        """(m): the weight of every edge over the roots of the degrees of its ends (Kipf and Welling, 2017); ones by default."""
        if values is None and dtype in self._factors:
            return self._factors[dtype]
        by_default = values is None
        if by_default:
            values = self.ones(dtype)
        degree = self.degrees(dtype) if values is None else self.structure.sum_rows(values)
        root = F.where(F.greater(degree, 0), F.rsqrt(degree), 0)
        weights = self.structure.of_columns(root) * self.structure.of_rows(root)
        if values is not None:
            weights = weights * values
        if not by_default:
            return weights
        if isinstance(weights, Tensor) and not _runtime.pending(weights):
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
