"""Neighbours that are sampled."""

import numpy as np

import tandem as td
from tandem.nn import graph
from tests.nn.graph.graphs import ring


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


def test_samples_depend_on_the_seed_alone():
    def drawn(seed):
        return [b.n_id.tolist() for b in graph.NeighborLoader(ring(), [1, 2], batch_size=4, shuffle=True, seed=seed)]

    assert drawn(1) == drawn(1) and drawn(1) != drawn(2)
