"""embedding_lookup over variables on servers, in deferred graphs: only touched rows cross, in both directions."""

import numpy as np
import pytest

import tandem as td
from tandem.distributed import Cluster

COUNT, WIDTH = 24, 8


def build(rows, servers):
    with td.Graph() as graph:
        ids = td.placeholder(td.int64, (COUNT,), name="ids")
        shards = []
        for k in range(servers):
            with td.device(f"/job:ps/task:{k}"):
                start = np.arange(rows // servers * WIDTH, dtype=np.float32).reshape(-1, WIDTH) / 1000 + k
                shards.append(td.Variable(td.tensor(start), name=f"shard_{k}"))
        with td.device("/job:worker/task:0"):
            found = td.nn.functional.embedding_lookup(shards, ids)
            loss = (found * found).sum()
            step = td.optim.SGD(shards, lr=0.1).minimize(loss)
        init = td.global_variables_initializer()
    return graph, ids, shards, found, step, init


def sent(cluster):
    return sum(d["counts"]["bytes_sent"] for d in cluster.describe().values())


@pytest.mark.parametrize("servers", [2, 3])
def test_bytes_do_not_depend_on_the_size_of_the_table(servers):
    moved = []
    data = np.random.default_rng(0).integers(0, 60, COUNT)
    for rows in (60, 6000):
        graph, ids, shards, found, step, init = build(rows, servers)
        with Cluster({"ps": servers, "worker": 1}, engine="threads") as cluster:
            session = td.Session(graph, target=cluster)
            session.run(init)
            before = sent(cluster)
            rows_found = session.run(found, {ids: data})
            looked_up = sent(cluster)
            session.run(step, {ids: data})
            moved.append((looked_up - before, sent(cluster) - looked_up))
            after = session.values_of(shards)
        graph, ids, shards, found, step, init = build(rows, servers)
        alone = td.Session(graph, soft_placement=True)
        alone.run(init)
        assert bool((rows_found == alone.run(found, {ids: data})).all())
        alone.run(step, {ids: data})
        for a, b in zip(after, alone.values_of(shards), strict=True):
            assert td.allclose(a, b, rtol=1e-5)
    assert moved[0] == moved[1]
    assert moved[0][0] <= servers * COUNT * (WIDTH * 4 + 3 * 8)  # rows, and what tells which
