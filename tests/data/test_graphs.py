"""Loaders of graphs."""

import numpy as np

import tandem as td
from tandem.nn import graph
from tests.nn.graph.graphs import ring

A = graph.GraphData(x=td.tensor([[1.0], [2.0]]), edge_index=td.tensor([[0], [1]]), y=td.tensor(3))


B = graph.GraphData(x=td.tensor([[5.0], [6.0], [7.0]]), edge_index=td.tensor([[2, 0], [1, 1]]), y=td.tensor(4))


def test_a_loader_of_small_graphs():
    sizes = [b.num_graphs for b in graph.GraphLoader([A, B, A, B, A], batch_size=2)]
    assert sizes == [2, 2, 1]


def test_with_all_neighbours_the_first_nodes_get_what_the_whole_graph_gives_them():
    td.manual_seed(0)
    data = ring()
    model = td.models.GCN(1, 4, 2, dropout=0.0)
    first, second = td.nn.SAGEConv(1, 4), td.nn.SAGEConv(4, 2)
    whole = second(first(data.x, data.edge_index).relu(), data.edge_index)
    (batch,) = graph.NeighborLoader(data, [-1, -1], batch_size=2, input_nodes=td.tensor([4, 9]))
    part = second(first(batch.x, batch.edge_index).relu(), batch.edge_index)[:2]
    np.testing.assert_allclose(part.detach().numpy(), whole.detach().numpy()[[4, 9]], rtol=1e-5)
    assert model(data.x, data.edge_index).shape == (12, 2)
