"""A program on a cluster and in one process."""

import numpy as np

import tandem as td


def both(graph, cluster, use):
    """What `use(session)` gives on the cluster, after a check that one process gives the same."""
    expected, found = use(td.Session(graph, soft_placement=True)), use(td.Session(graph, target=cluster))
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    return found
