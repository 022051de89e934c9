"""Loaders of graphs."""

import numpy as np
import pytest

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


def test_as_many_edges_as_nodes():
    features = td.arange(4.0)[:, None]  # edge k leads from node k to the next one
    data = graph.GraphData(x=features + 10, edge_index=td.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), edge_attr=features)
    for batch in graph.NeighborLoader(data, [-1], batch_size=1):
        (source,) = batch.edge_index[0].tolist()
        assert batch.edge_attr.tolist() == [[float(batch.n_id[source])]]
        assert batch.x[:, 0].tolist() == [10.0 + n for n in batch.n_id.tolist()]


def test_nodes_to_begin_with():
    data = ring()
    for nodes in ([4, 9], np.array([4, 9]), td.tensor([4, 9]), [n in (4, 9) for n in range(12)]):
        (batch,) = graph.NeighborLoader(data, [1], batch_size=2, input_nodes=nodes)
        assert batch.n_id[:2].tolist() == [4, 9]
    with pytest.raises(td.ShapeError, match=r"mask of shape \(2,\); the graph has 12 nodes"):
        graph.NeighborLoader(data, [1], input_nodes=[True, False])
    with pytest.raises(td.IndexRangeError, match="input_nodes go from -1 to 3; nodes of the graph go from 0 to 11"):
        graph.NeighborLoader(data, [1], input_nodes=[3, -1])
