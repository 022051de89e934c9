"""Rows that are made when they are looked up."""

import pytest

import tandem as td
from tandem.distributed import Cluster, ParameterServer, ShardedEmbedding


def cluster_of(servers):
    return Cluster({"ps": servers}, engine="threads")


def test_only_touched_rows_move_and_exist():
    with cluster_of(2) as cluster:
        table = ShardedEmbedding(None, 16, td.optim.Adagrad, lr=0.1)
        server = ParameterServer(table, mode="async", cluster=cluster)
        ids = td.tensor([5, 10**15, 5, 7, 10**15])
        table(ids).sum().backward()
        server.step()
        assert table.moved["rows"] == 2 * 3 and table.moved["bytes"] == 2 * 3 * (16 * 4 + 8)
        found = [cluster.peer(t).call("ps.describe", table.name)[0] for t in server.servers]
        assert sum(f["rows"] for f in found) == 3 and [f["version"] for f in found] == [1, 1]


def test_all_rows_from_the_start_are_zeros_and_ids_are_checked():
    with cluster_of(3) as cluster:
        table = ShardedEmbedding(10, 2, td.optim.SGD, on_demand=False, lr=1.0)
        server = ParameterServer(table, mode="async", cluster=cluster)
        table(td.tensor([9, 0, 9])).sum().backward()
        server.step()
        assert table(td.arange(10)).detach()[:, 0].tolist() == [-1.0, *[0.0] * 8, -2.0]
        for wrong in (10, -1):
            with pytest.raises(IndexError, match=f"id {wrong} in a table of 10 rows"):
                table(td.tensor([wrong]))
        with pytest.raises(TypeError, match="whole numbers"):
            table(td.tensor([0.5]))


def test_a_server_says_when_its_rows_do_not_fit_and_more_servers_help():
    limit = 20_000  # 64 bytes a row and as many of state
    ids = td.arange(250)

    def train(servers):
        with cluster_of(servers) as cluster:
            table = ShardedEmbedding(None, 16, td.optim.Adagrad, limit=limit, lr=0.1)
            server = ParameterServer(table, mode="async", cluster=cluster)
            for part in (ids[:60], ids):
                table(part).sum().backward()
                server.step()

    with pytest.raises(td.OutOfMemoryError, match=r"its limit is 20,000 B"):
        train(1)
    train(4)
