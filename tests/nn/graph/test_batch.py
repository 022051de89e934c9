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


def test_numbers_of_nodes_of_any_shape_move_with_their_graph():
    make = lambda **more: graph.GraphData(x=td.ones(2, 1), edge_index=td.tensor([[0], [1]]), **more)
    for root in (1, td.tensor(1), td.tensor([1])):
        batch = graph.batch_graphs([make(root_index=root), make(root_index=root)])
        assert batch.root_index.tolist() == [1, 3]
        assert [int(g.root_index) for g in batch.unbatch()] == [1, 1]


def test_names_become_a_list_and_fields_come_in_any_order():
    make = lambda **more: graph.GraphData(x=td.ones(2, 1), **more)
    batch = graph.batch_graphs([make(name="a", y=1), make(y=2.5, name="b")])
    assert batch.name == ["a", "b"] and batch.y.tolist() == [1.0, 2.5]
    assert [g.name for g in batch.unbatch()] == ["a", "b"]
