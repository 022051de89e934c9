"""Batches of small graphs, samples of large ones, loaders."""

import numpy as np

import tandem as td
from tandem.nn import graph

A = graph.GraphData(x=td.tensor([[1.0], [2.0]]), edge_index=td.tensor([[0], [1]]), y=td.tensor(3))
B = graph.GraphData(x=td.tensor([[5.0], [6.0], [7.0]]), edge_index=td.tensor([[2, 0], [1, 1]]), y=td.tensor(4))


def test_graphs_become_one_and_graphs_again():
    batch = graph.batch_graphs([A, B])
    assert batch.num_graphs == 2 and batch.num_nodes == 5
    assert batch.edge_index.tolist() == [[0, 4, 2], [1, 3, 3]] and batch.batch.tolist() == [0, 0, 1, 1, 1]
    assert batch.y.tolist() == [3, 4]
    again = batch.unbatch()
    for made, given in zip(again, [A, B], strict=True):
        for name in ("x", "edge_index", "y"):
            assert getattr(made, name).tolist() == getattr(given, name).tolist()


def test_a_batch_computes_what_its_graphs_compute():
    td.manual_seed(0)
    layer = td.nn.GCNConv(1, 3)
    batch = graph.batch_graphs([A, B, A])
    whole = layer(batch.x, batch.edge_index)
    single = td.cat([layer(g.x, g.edge_index) for g in (A, B, A)])
    np.testing.assert_allclose(whole.detach().numpy(), single.detach().numpy(), rtol=1e-5)


def test_pools():
    batch = graph.batch_graphs([A, B])
    assert graph.global_add_pool(batch.x, batch.batch).tolist() == [[3], [18]]
    assert graph.global_mean_pool(batch.x, batch.batch).tolist() == [[1.5], [6]]
    assert graph.global_max_pool(batch.x, batch.batch, 3).tolist() == [[2], [7], [0]]
    assert graph.global_add_pool(A.x).tolist() == [[3]]


def test_a_loader_of_small_graphs():
    sizes = [b.num_graphs for b in graph.GraphLoader([A, B, A, B, A], batch_size=2)]
    assert sizes == [2, 2, 1]


def ring(n=12):
    index = td.tensor([[*range(n), *range(n)], [*((i + 1) % n for i in range(n)), *((i + 2) % n for i in range(n))]])
    return graph.GraphData(
        x=td.arange(float(n))[:, None], edge_index=index, edge_attr=td.arange(2.0 * n), y=td.arange(n)
    )


def test_samples_hold_edges_of_the_graph_and_not_too_many():
    data = ring()
    loader = graph.NeighborLoader(data, [1, 1], batch_size=3, input_nodes=td.tensor([0, 5, 7, 8]))
    batches = list(loader)
    assert [b.batch_size for b in batches] == [3, 1]
    for b in batches:
        source, target = b.n_id[b.edge_index[0]].numpy(), b.n_id[b.edge_index[1]].numpy()
        assert set((target - source) % 12) <= {1, 2}
        assert np.bincount(b.edge_index[1].numpy()).max() <= 1
        assert b.x[:, 0].tolist() == b.n_id.tolist() == b.y.tolist()
        kind = (b.edge_attr.numpy() >= 12).astype(int) + 1  # the second twelve lead two steps on
        assert ((target - source) % 12 == kind).all()
    assert batches[0].n_id[:3].tolist() == [0, 5, 7]


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


def test_samples_depend_on_the_seed_alone():
    def drawn(seed):
        return [b.n_id.tolist() for b in graph.NeighborLoader(ring(), [1, 2], batch_size=4, shuffle=True, seed=seed)]

    assert drawn(1) == drawn(1) and drawn(1) != drawn(2)
