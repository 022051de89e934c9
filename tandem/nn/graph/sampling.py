"""Parts of large graphs: neighbours drawn at random around some nodes, and loaders of such parts and of small graphs."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.autograd.modes import no_grad
from tandem.data.loader import DataLoader
from tandem.errors import ValueRangeError
from tandem.nn.graph.batch import GraphData, batch_graphs
from tandem.nn.graph.edges import Edges, edges_of
from tandem.ops.random import Generator

Tensor = _runtime.Tensor


@no_grad()
def sample_neighbors(edges: Edges, nodes, fanout: int, generator=None):
    """Up to `fanout` of the edges that lead to each of `nodes`, drawn without replacement; all with -1.

    nodes: (k) -> numbers of edges in the list of `edges`, and for each the position in `nodes` that it leads to
    """
    start = edges.structure.start
    first, degree = start[nodes], start[nodes + 1] - start[nodes]
    owner = F.repeat_interleave(F.arange(nodes.shape[0], device=nodes.device), degree)
    rank = F.arange(owner.shape[0], device=nodes.device) - (F.cumsum(degree, 0) - degree)[owner]
    if fanout < 0 or owner.shape[0] == 0:
        return first[owner] + rank, owner
    # In random order within each node; the first so many of it are a sample.
    drawn = F.argsort(F.rand((owner.shape[0],), generator=generator))
    drawn = drawn[F.argsort(owner[drawn], stable=True)]
    kept = F.sort(drawn[rank < fanout])
    kept = kept[0] if isinstance(kept, tuple) else kept
    return first[owner[kept]] + rank[kept], owner[kept]


@no_grad()
def sample_subgraph(edges: Edges, seeds, fanouts, generator=None):
    """The neighbourhood of `seeds`: for each number in fanouts one more step outwards.

    -> nodes (k) of the whole graph, seeds first; edge_index (2, m) among them, by their place in `nodes`; numbers (m) of the edges
    in the list of `edges`
    """
    place = F.full((max(edges.shape),), -1, dtype=dtypes.int64, device=seeds.device)
    nodes = F.astype(seeds, dtypes.int64)
    place[nodes] = F.arange(nodes.shape[0], device=nodes.device)
    frontier, before, sources, targets, numbers = nodes, 0, [], [], []
    for fanout in fanouts:
        chosen, owner = sample_neighbors(edges, frontier, fanout, generator)
        reached = edges.source[chosen]
        fresh = F.unique(reached[place[reached] < 0])
        place[fresh] = F.arange(fresh.shape[0], device=nodes.device) + nodes.shape[0]
        sources.append(place[reached])
        targets.append(owner + before)
        numbers.append(chosen)
        before, frontier = nodes.shape[0], fresh
        nodes = F.concat([nodes, fresh], 0)
    return nodes, F.stack([F.concat(sources, 0), F.concat(targets, 0)], 0), F.concat(numbers, 0)


class GraphLoader(DataLoader):
    """Batches of small graphs: a DataLoader over GraphData objects that joins them.

    >>> one = td.nn.graph.GraphData(x=td.ones(2, 1), edge_index=td.tensor([[0], [1]]))
    >>> [batch.num_nodes for batch in td.nn.graph.GraphLoader([one] * 3, batch_size=2)]
    [4, 2]
    """

    def __init__(self, dataset, batch_size: int = 1, shuffle: bool = False, **settings):
        super().__init__(dataset, batch_size, shuffle, collate_fn=settings.pop("collate_fn", batch_graphs), **settings)


class NeighborLoader(DataLoader):
    """Batches of nodes of one large graph, each with a sample of its neighbourhood.

    num_neighbors: how many neighbours are drawn at every step outwards, e.g. [10, 5]; -1 takes all. input_nodes: nodes to begin
    with (all). A batch is a GraphData with the rows of x, y and edge_attr that it needs, n_id (numbers of its nodes), batch_size:
    so many of its first nodes are those asked for. What is drawn depends on the seed and these nodes alone.
    """

    def __init__(self, data: GraphData, num_neighbors, batch_size: int = 1, input_nodes=None, shuffle: bool = False, seed: int = 0,
                 **settings):  # fmt: skip
        if not num_neighbors:
            raise ValueRangeError("NeighborLoader", "num_neighbors is empty; it needs a number for every step outwards")
        self.data, self.num_neighbors = data, list(num_neighbors)
        self.edges = edges_of(data.edge_index, data.num_nodes)
        nodes = F.arange(data.num_nodes) if input_nodes is None else input_nodes
        if nodes.dtype is dtypes.bool_:
            nodes = F.reshape(F.argwhere(nodes), (-1,))
        self._seed = seed
        super().__init__(nodes.tolist(), batch_size, shuffle, collate_fn=self._neighbourhood, seed=seed, **settings)

    def _neighbourhood(self, seeds: list[int]) -> GraphData:
        data = self.data
        generator = Generator().manual_seed(hash((self._seed, *seeds)) & (2**62 - 1))
        nodes, edge_index, numbers = sample_subgraph(
            self.edges, _runtime.from_data(seeds, dtypes.int64), self.num_neighbors, generator
        )
        made = GraphData(edge_index=edge_index, num_nodes=nodes.shape[0], n_id=nodes, batch_size=len(seeds))
        for name, value in data.fields().items():
            if name == "edge_index" or not isinstance(value, Tensor) or not value.ndim:
                continue
            if value.shape[0] == data.num_nodes:
                setattr(made, name, value[nodes])
            elif value.shape[0] == data.num_edges:
                setattr(made, name, value[self.edges.order[numbers]])
        return made
