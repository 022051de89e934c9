"""Tables on servers: rows on demand, the same as one table, only touched rows move."""

import threading

import numpy as np

import tandem as td
from tandem.distributed import Cluster, ParameterServer, ShardedEmbedding
from tandem.nn.candidates import LogUniformSampler
from tests.distributed.servers.workers import in_threads


def cluster_of(servers):
    return Cluster({"ps": servers}, engine="threads")


def ids_of(step, worker, rows=50, count=12):
    rng = np.random.default_rng(100 * step + worker)
    return td.tensor(rng.integers(0, rows, (count // 2, 2)))


class Model(td.nn.Module):
    def __init__(self, rows=50, on_demand=True, optimizer=td.optim.Adagrad, **settings):
        super().__init__()
        td.manual_seed(0)
        self.table = ShardedEmbedding(rows, 4, optimizer, on_demand=on_demand, **(settings or {"lr": 0.1}))
        self.top = td.nn.Linear(8, 1)

    def forward(self, ids):
        return self.top(self.table(ids).reshape(ids.shape[0], 8)).sum()


def trained(servers, workers=2, steps=5, **options):
    models = [Model(**options) for _ in range(workers)]
    with cluster_of(servers) as cluster:

        def work(k):
            opt = td.optim.SGD(models[k].top.parameters(), lr=0.1)
            server = ParameterServer(models[k], opt, cluster=cluster, worker=k, workers=workers)
            while server.version < steps:
                models[k](ids_of(server.version, k)).backward()
                assert server.step().applied

        in_threads(workers, work)
        every = td.arange(50)
        with td.no_grad():
            return models[0].table(every).detach(), models[0].top.weight.detach().clone()


def test_any_number_of_servers_trains_the_same_table():
    one, top = trained(1)
    for servers in (2, 3):
        again, other = trained(servers)
        assert bool((again == one).all()) and bool((other == top).all())


def test_the_table_trains_as_an_embedding_of_one_process():
    table, _ = trained(2, workers=1, optimizer=td.optim.SparseAdam, lr=0.05)
    model = Model()
    plain = td.nn.Embedding(50, 4, sparse=True)
    with td.no_grad():
        plain.weight.copy_(Model().table(td.arange(50)).detach())
    opts = [td.optim.SparseAdam(plain.parameters(), lr=0.05), td.optim.SGD(model.top.parameters(), lr=0.1)]
    for step in range(5):
        ids = ids_of(step, 0)
        for o in opts:
            o.zero_grad()
        model.top(plain(ids).reshape(ids.shape[0], 8)).sum().backward()
        for o in opts:
            o.step()
    assert td.allclose(table, plain.weight.detach(), rtol=1e-5, atol=1e-6)


def test_gradients_are_those_of_a_table_in_this_process():
    model = Model()
    ids = ids_of(0, 0)
    rows = model.table(td.arange(50)).detach()
    out = model.table(ids)
    (out * out).sum().backward()
    numbers, leaf = model.table._used[-1]
    count = np.zeros(50)
    np.add.at(count, ids.numpy().reshape(-1), 1)
    expected = 2 * rows.numpy() * count[:, None]
    assert np.allclose(leaf.grad.numpy(), expected[numbers], rtol=1e-6)


def test_sampled_softmax_on_servers_equals_the_whole_table():
    classes, width, b = 200, 8, 6
    with cluster_of(2) as cluster:
        table = ShardedEmbedding(classes, width, td.optim.SGD, lr=1.0, scale=0.5)
        server = ParameterServer(table, mode="async", cluster=cluster)
        whole = table(td.arange(classes)).detach().clone().requires_grad_(True)
        table._used.clear()
        td.manual_seed(3)
        x, labels = td.randn(b, width), td.tensor([3, 7, 3, 150, 0, 9])
        sampler = LogUniformSampler(classes)
        sampled = sampler.sample(labels.reshape(b, 1), 20, True, None)
        loss = table.sampled_softmax(x, labels, 20, sampled)
        expected = td.nn.functional.sampled_softmax_loss(
            whole, td.zeros(classes), labels.reshape(b, 1), x, 20, classes, sampled_values=sampled, sparse=False
        )
        assert td.allclose(loss, expected, rtol=1e-6)
        loss.sum().backward()
        expected.sum().backward()
        touched = table.moved["rows"] - classes
        assert touched <= 26
        server.step()
        after = table(td.arange(classes)).detach()
        assert td.allclose(after, whole.detach() - whole.grad, rtol=1e-5, atol=1e-6)


def test_tables_come_back_with_their_rows_when_a_server_dies(tmp_path):
    steps, (expected, top) = 12, trained(2, steps=12)
    models = [Model(), Model()]
    with cluster_of(2) as cluster:
        servers = [
            ParameterServer(
                m, td.optim.SGD(m.top.parameters(), lr=0.1), cluster=cluster, worker=k, workers=2, snapshots=str(tmp_path), every=3,
                timeout=300.0,
            )
            for k, m in enumerate(models)
        ]  # fmt: skip
        killed = threading.Event()

        def work(k):
            server = servers[k]
            while server.version < steps:
                if k == 0 and server.version == 7 and not killed.is_set():
                    killed.set()
                    cluster.kill("/job:ps/task:1")
                models[k](ids_of(server.version, k)).backward()
                server.step()

        with servers[0].watch(interval=0.02) as watch:
            in_threads(2, work)
        assert killed.is_set() and watch.restarts["/job:ps/task:1"] == 1
        with td.no_grad():
            found = models[0].table(td.arange(50)).detach()
        assert bool((found == expected).all()) and bool((models[0].top.weight.detach() == top).all())


def test_rows_are_not_taken_from_a_table_that_has_not_gone_back_yet(tmp_path):
    """A server's parameters are restored before its tables: a worker that has pulled them looks up rows of the same time."""
    with cluster_of(1) as cluster:
        model, ids, rows = Model(), td.arange(4).reshape(2, 2), []
        server = ParameterServer(
            model, td.optim.SGD(model.top.parameters(), lr=0.1), cluster=cluster, snapshots=str(tmp_path), every=1
        )
        for _ in range(2):
            rows.append(model.table(ids).detach().clone())
            model(ids).backward()
            server.step()
        server.snapshot()
        peer = cluster.peer("/job:ps/task:0")
        peer.call("ps.restore", server.name, 1, 1)
        server.pull()
        assert (server.version, server.generation) == (1, 1)
        asking = threading.Thread(target=lambda: rows.append(model.table(ids).detach().clone()))
        asking.start()
        asking.join(0.3)
        peer.call("ps.restore", model.table.name, 1, 1)
        asking.join(300)
        assert bool((rows[2] == rows[1]).all()) and not bool((rows[1] == rows[0]).all())


def test_lookups_without_gradients_keep_nothing():
    with cluster_of(1) as cluster:
        table = ShardedEmbedding(None, 4, td.optim.SGD, lr=1.0)
        server = ParameterServer(table, mode="async", cluster=cluster)
        before = table(td.tensor([3])).detach()
        table(td.tensor([3])).sum().backward()
        with td.no_grad():
            for _ in range(3):
                assert not table(td.tensor([3, 4])).requires_grad
        assert len(table._used) == 2  # those before
        server.step()
        assert td.allclose(table(td.tensor([3])), before - 1.0)
