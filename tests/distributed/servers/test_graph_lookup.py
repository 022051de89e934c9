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
    assert moved[0][0] == COUNT * (WIDTH * 4 + 8)  # each row once, however many servers there are, and its number


@pytest.mark.parametrize("ids", [[3, 0, 3, 58], [1, 1, 1], []])  # the last two leave servers without any
def test_each_server_is_asked_for_its_own_rows(ids):
    """Any number of them, which only a run knows."""
    with td.Graph() as graph:
        numbers = td.placeholder(td.int64, (None,), name="numbers")
        shards = []
        for k in range(3):
            with td.device(f"/job:ps/task:{k}"):
                shards.append(td.Variable(td.arange(20.0 * WIDTH).reshape(20, WIDTH) + k, name=f"part_{k}"))
        with td.device("/job:worker/task:0"):
            found = td.nn.functional.embedding_lookup(shards, numbers)
            slopes = td.gradients((found * found).sum(), shards)
        init = td.global_variables_initializer()
    fed = {numbers: np.array(ids, dtype=np.int64)}
    with Cluster({"ps": 3, "worker": 1}, engine="threads") as cluster:
        session, alone = td.Session(graph, target=cluster), td.Session(graph, soft_placement=True)
        results = []
        for s in (session, alone):
            s.run(init)
            results.append(s.run([found, *slopes], fed))
        assert results[0][0].shape == (len(ids), WIDTH)
        for a, b in zip(*results, strict=True):
            assert bool((a == b).all())
        before = sent(cluster)
        session.run(found, fed)
        assert sent(cluster) - before == len(ids) * (WIDTH * 4 + 8)
