"""Parameters divided among servers."""

import pytest

import tandem as td
from tandem.distributed import Cluster, ParameterServer
from tandem.distributed.servers.pieces import divide
from tests.distributed.servers.workers import network


@pytest.fixture
def cluster():
    made = Cluster({"ps": 2}, engine="threads")
    yield made
    made.close()


def test_parameters_are_divided_by_bytes(cluster):
    model = network()
    server = ParameterServer(model, td.optim.Adam(model.parameters()), mode="async", cluster=cluster)
    sizes = [d["bytes"] for d in server.describe().values()]
    total = sum(p.numel() * 4 for p in model.parameters())
    assert sum(sizes) == total and max(sizes) <= 0.75 * total
    big = divide([(1000, 4000), (3, 12), (1, 4)], 4, lambda i: True)
    loads = [sum(p.end - p.begin for p in pieces if p.parameter == 0) for pieces in big]
    assert sum(loads) == 1000 and max(loads) - min(loads) <= 1
    whole = divide([(1000, 4000), (3, 12), (1, 4)], 4, lambda i: False)
    assert sum(len(p) for p in whole) == 3 and all(p.whole for pieces in whole for p in pieces)
