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
        assert server.version == 1  # though nothing was pulled


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


@pytest.mark.parametrize(
    ("rows", "limit", "fits"),
    [(100, 100 * 128, True), (101, 100 * 128, False), (60, 59 * 128, False), (1, 100, False), (1000, 1000 * 128, True)],
)
def test_limits_are_met_to_the_row_from_the_first_lookup_on(rows, limit, fits):
    """Rows of 64 bytes, and as many of Adagrad's state, which is not there before the first push."""
    with cluster_of(1) as cluster:
        table = ShardedEmbedding(None, 16, td.optim.Adagrad, limit=limit, lr=0.1)
        server = ParameterServer(table, mode="async", cluster=cluster)
        if not fits:
            with pytest.raises(
                td.OutOfMemoryError, match=f"{rows:,} rows .* would take {rows * 128:,} B .*{limit:,} B"
            ):
                table(td.arange(rows))
            return
        for part in (td.arange(rows // 3), td.arange(rows)):
            table(part).sum().backward()
            server.step()
        shape = cluster.peer("/job:ps/task:0").call("ps.describe", table.name)[0]
        assert shape["rows"] == rows and shape["bytes"] * 2 <= limit


def test_limits_hold_for_tables_that_are_there_from_the_start():
    with cluster_of(2) as cluster:
        table = ShardedEmbedding(1000, 16, td.optim.SGD, on_demand=False, limit=500 * 64 - 1, lr=0.1)
        with pytest.raises(td.OutOfMemoryError, match="500 rows of this server would take 32,000 B"):
            ParameterServer(table, mode="async", cluster=cluster)


def test_rows_that_come_late_have_the_state_of_new_rows():
    """Adagrad begins with an accumulator that is not zero, in a table that grows, too."""
    settings = {"lr": 0.5, "initial_accumulator_value": 4.0}
    with cluster_of(1) as cluster:
        table = ShardedEmbedding(None, 2, td.optim.Adagrad, **settings)
        server = ParameterServer(table, mode="async", cluster=cluster)
        for part in (td.arange(3), td.arange(500)):
            before = table(part).detach()
            table._used.clear()
            table(part).sum().backward()
            server.step()
        moved = before[3:] - table(part).detach()[3:]
        assert td.allclose(moved, td.full_like(moved, 0.5 / 5.0**0.5), rtol=1e-4)


def test_optimisers_that_do_not_update_by_rows_are_refused():
    with pytest.raises(td.UnsupportedError, match="Adam: a gradient is sparse"):
        ShardedEmbedding(None, 2, td.optim.Adam, lr=0.1)
    with pytest.raises(ValueError, match="any number of rows has no classes"):
        ShardedEmbedding(None, 2, td.optim.SGD, lr=0.1).sampled_softmax(td.ones(1, 2), td.tensor([0]), 3)
