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
