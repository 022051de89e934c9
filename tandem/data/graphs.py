"""Loaders of graphs: batches of small ones, and of nodes of a large one with samples of their neighbourhoods."""

from __future__ import annotations

import tandem.ops as F
from tandem import _runtime, dtypes
from tandem.data.loader import DataLoader
from tandem.errors import IndexRangeError, ShapeError, ValueRangeError
from tandem.nn.graph.batch import GraphData, batch_graphs
from tandem.nn.graph.edges import edges_of
from tandem.nn.graph.sampling import sample_subgraph
from tandem.ops.define import as_tensor
from tandem.ops.random import Generator

Tensor = _runtime.Tensor


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
    with (all), or a mask. A batch is a GraphData with the rows of x, y and edge_attr that it needs, n_id (numbers of its nodes),
    batch_size: so many of its first nodes are those asked for. Of other fields, those with a row for every node, or for every edge,
    come along; where these numbers are equal, fields with "edge" in their names are of edges. What is drawn depends on the seed and
    these nodes alone.
    """

    def __init__(self, data: GraphData, num_neighbors, batch_size: int = 1, input_nodes=None, shuffle: bool = False, seed: int = 0,
                 **settings):  # fmt: skip
        if not num_neighbors:
            raise ValueRangeError("NeighborLoader", "num_neighbors is empty; it needs a number for every step outwards")
        self.data, self.num_neighbors = data, list(num_neighbors)
        self.edges = edges_of(data.edge_index, data.num_nodes)
        nodes = (
            F.arange(data.num_nodes) if input_nodes is None else as_tensor("NeighborLoader", "input_nodes", input_nodes)
        )
        if nodes.dtype is dtypes.bool_ and tuple(nodes.shape) != (data.num_nodes,):
            raise ShapeError(
                "NeighborLoader",
                f"input_nodes is a mask of shape {tuple(nodes.shape)}; the graph has {data.num_nodes} nodes",
            )
        if nodes.dtype is dtypes.bool_:
            nodes = F.reshape(F.argwhere(nodes), (-1,))
        if nodes.size and not 0 <= int(F.amin(nodes)) <= int(F.amax(nodes)) < data.num_nodes:
            raise IndexRangeError(
                "NeighborLoader", f"input_nodes go from {int(F.amin(nodes))} to {int(F.amax(nodes))}; nodes of the graph go from "
                f"0 to {data.num_nodes - 1}",
            )  # fmt: skip
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
            of_edges = value.shape[0] == data.num_edges
            if of_edges and ("edge" in name or value.shape[0] != data.num_nodes):
                setattr(made, name, value[self.edges.order[numbers]])
            elif value.shape[0] == data.num_nodes:
                setattr(made, name, value[nodes])
        return made
