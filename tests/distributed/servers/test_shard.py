"""What a server does with gradients."""

import pytest

import tandem as td
from tandem.distributed import Cluster, ParameterServer
from tests.distributed.servers.workers import alone, batch, in_threads, loss_of, network, same


@pytest.fixture
def cluster():
    made = Cluster({"ps": 2}, engine="threads")
    yield made
    made.close()


def test_asynchronous_updates_are_applied_at_once_and_staleness_is_counted(cluster):
    a, b = network(), network()
    first = ParameterServer(a, td.optim.SGD(a.parameters(), lr=0.1), mode="async", cluster=cluster, worker=0, workers=2)
    second = ParameterServer(
        b, td.optim.SGD(b.parameters(), lr=0.1), mode="async", cluster=cluster, worker=1, workers=2
    )
    for step in range(3):
        loss_of(a, batch(step, 0)).backward()
        assert first.step().staleness == 0
    loss_of(b, batch(0, 1)).backward()
    report = second.push()
    assert report.applied and report.staleness == 3
    found = first.describe()["/job:ps/task:0"]
    assert found["counts"]["applied"] == 4 and found["counts"]["stalest"] == 3 and found["version"] == 4


def test_bounded_staleness_refuses_what_is_too_old(cluster):
    a, b = network(), network()
    make = lambda m, k: ParameterServer(
        m, td.optim.SGD(m.parameters(), lr=0.1), mode="bounded", staleness=2, cluster=cluster, worker=k, workers=2
    )
    first, second = make(a, 0), make(b, 1)
    for step in range(3):
        loss_of(a, batch(step, 0)).backward()
        assert first.step().applied
    loss_of(b, batch(0, 1)).backward()
    before = [p.detach().clone() for p in a.parameters()]
    report = second.step()
    assert report.refused and not report.applied
    assert same(b, before)  # it has pulled, nothing of its gradients is there
    loss_of(b, batch(1, 1)).backward()
    assert second.step().applied


def test_pushes_count_once(cluster):
    model = network()
    server = ParameterServer(model, td.optim.SGD(model.parameters(), lr=0.1), mode="async", cluster=cluster)
    loss_of(model, batch(0, 0)).backward()
    server.push()
    server.pushed -= 1  # the answer was lost: it is sent again
    report = server.push()
    assert report.repeated and not report.applied
    server.pull()
    assert same(model, alone(lambda ps: td.optim.SGD(ps, lr=0.1), 1, 1))


def test_backup_workers_take_the_first_and_drop_the_late(cluster):
    workers, needed, steps = 3, 2, 4
    models = [network() for _ in range(workers)]
    make = lambda k: ParameterServer(
        models[k], td.optim.SGD(models[k].parameters(), lr=0.1), mode="backup", needed=needed, cluster=cluster, worker=k,
        workers=workers,
    )  # fmt: skip
    servers = [make(k) for k in range(workers)]

    def work(k):
        server = servers[k]
        while server.version < steps:
            loss_of(models[k], batch(server.version, k)).backward()
            server.step()

    late = servers[2]
    loss_of(models[2], batch(0, 2)).backward()  # computed for step 0, and it sleeps
    in_threads(2, work)
    report = late.step()
    assert report.dropped and not report.applied and late.version == steps
    expected = alone(lambda ps: td.optim.SGD(ps, lr=0.1), workers, steps, chosen=lambda step: range(2))
    assert all(same(m, expected) for m in models)
    counts = late.describe()["/job:ps/task:1"]["counts"]
    assert counts["dropped"] == 1 and counts["applied"] == needed * steps


def test_a_missing_worker_is_named(cluster):
    model = network()
    server = ParameterServer(
        model, td.optim.SGD(model.parameters(), lr=0.1), mode="sync", cluster=cluster, worker=0, workers=3, timeout=0.2
    )
    loss_of(model, batch(0, 0)).backward()
    with pytest.raises(td.DeadlineError, match="no gradients of worker 1, 2"):
        server.step()


@pytest.mark.parametrize("mode", [{"mode": "async"}, {"mode": "bounded", "staleness": 5}])
def test_pushes_of_a_worker_that_was_started_again_count(cluster, mode):
    for life in range(2):
        model = network()
        opt = td.optim.SGD(model.parameters(), lr=0.1)
        server = ParameterServer(model, opt, cluster=cluster, worker=1, workers=2, **mode)
        for step in range(3):
            loss_of(model, batch(step, 1)).backward()
            report = server.step()
            assert report.applied and report.version == 3 * life + step + 1


def test_a_late_worker_does_not_bring_back_the_learning_rate_of_its_step(cluster):
    models = [network() for _ in range(3)]
    opts = [td.optim.SGD(m.parameters(), lr=1.0) for m in models]
    servers = [
        ParameterServer(m, o, mode="backup", needed=2, cluster=cluster, worker=k, workers=3)
        for k, (m, o) in enumerate(zip(models, opts, strict=True))
    ]
    loss_of(models[2], batch(0, 2)).backward()  # for step 0, with its learning rate, and it sleeps

    def work(k, steps):
        while servers[k].version < steps:
            opts[k].param_groups[0]["lr"] = 1.0 if servers[k].version < 2 else 0.0
            loss_of(models[k], batch(servers[k].version, k)).backward()
            servers[k].step()

    in_threads(2, lambda k: work(k, 4))
    before = [p.detach().clone() for p in models[0].parameters()]
    assert servers[2].step().dropped
    in_threads(2, lambda k: work(k, 6))
    assert same(models[0], before)


def test_a_server_that_went_back_learns_the_learning_rate_again(cluster, tmp_path):
    model = network()
    opt = td.optim.SGD(model.parameters(), lr=1.0)
    server = ParameterServer(model, opt, cluster=cluster, snapshots=str(tmp_path), every=100)
    opt.param_groups[0]["lr"] = 0.0
    for generation in range(2):
        before = [p.detach().clone() for p in model.parameters()]
        loss_of(model, batch(server.version, 0)).backward()
        server.step()
        assert same(model, before)
        for task in server.servers if generation == 0 else ():
            cluster.peer(task).call("ps.restore", server.name, 0, 1)
        server.pull()


def test_an_update_that_fails_ends_the_step_of_all_workers(cluster):
    errors = []

    def work(k):
        table = td.nn.Embedding(10, 2, sparse=True)
        server = ParameterServer(
            table, td.optim.Adam(table.parameters(), lr=0.1), cluster=cluster, worker=k, workers=2, timeout=300.0
        )
        table(td.tensor([1, 2])).sum().backward()
        try:
            server.step()
        except td.UnsupportedError as error:
            errors.append(str(error))

    in_threads(2, work, seconds=20)
    assert len(errors) == 2 and all("Adam: a gradient is sparse" in e and "test_shard.py" in e for e in errors)


def test_other_workers_must_mean_the_same_servers(cluster, tmp_path):
    def made(size, **options):
        model = td.nn.Linear(size, 1)
        options = {"mode": "async", "cluster": cluster, **options}
        return ParameterServer(model, td.optim.SGD(model.parameters(), lr=0.1), **options)

    made(1, snapshots=str(tmp_path))
    with pytest.raises(td.ShapeError, match=r"other parameters than this module: \(1, 1\).*\(1, 3\)"):
        made(3)  # whose weights those of (1, 1) would fill without a word
    with pytest.raises(ValueError, match="mode='async', and this worker has 'sync'"):
        made(1, mode="sync")
    with pytest.raises(ValueError, match="workers=1, and this worker has 2"):
        made(1, workers=2)
    made(3, name="others")
    with Cluster({"ps": 2}, engine="threads") as another, pytest.raises(td.ShapeError, match="safetensors have other"):
        made(3, cluster=another, snapshots=str(tmp_path), resume=True)
