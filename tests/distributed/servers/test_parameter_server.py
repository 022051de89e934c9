"""Parameter servers: the same as one process, in every mode; gradients that count once, late ones, stale ones."""

import threading

import numpy as np
import pytest

import tandem as td
from tandem.distributed import Cluster, ParameterServer
from tandem.distributed.servers.pieces import divide


@pytest.fixture
def cluster():
    made = Cluster({"ps": 2}, engine="threads")
    yield made
    made.close()


def network(seed=0):
    td.manual_seed(seed)
    return td.nn.Sequential(td.nn.Linear(6, 32), td.nn.ReLU(), td.nn.Linear(32, 3))


def batch(step, worker, rows=8):
    rng = np.random.default_rng(1000 + 17 * step + worker)
    return td.tensor(rng.standard_normal((rows, 6), dtype=np.float32)), td.tensor(rng.integers(0, 3, rows))


def loss_of(model, data):
    x, y = data
    return td.nn.functional.cross_entropy(model(x), y)


def in_threads(count, work, seconds=60):
    errors = []

    def run(k):
        try:
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(seconds)
    assert not any(t.is_alive() for t in threads), "a worker hangs"
    if errors:
        raise errors[0]


def alone(optimizer, workers, steps, chosen=None):
    """What one process computes with the mean of the workers' gradients."""
    model = network()
    opt = optimizer(model.parameters())
    for step in range(steps):
        total = None
        for w in chosen(step) if chosen else range(workers):
            model.zero_grad()
            loss_of(model, batch(step, w)).backward()
            grads = [p.grad for p in model.parameters()]
            total = grads if total is None else [a + b for a, b in zip(total, grads, strict=True)]
        count = len(list(chosen(step))) if chosen else workers
        for p, g in zip(model.parameters(), total, strict=True):
            p.grad = g if count == 1 else g * (1.0 / count)
        opt.step()
    return [p.detach() for p in model.parameters()]


def same(model, expected):
    return all(bool((p.detach() == e).all()) for p, e in zip(model.parameters(), expected, strict=True))


OPTIMIZERS = {
    "sgd": lambda ps: td.optim.SGD(ps, lr=0.1, momentum=0.9),
    "adam": lambda ps: td.optim.AdamW(ps, lr=0.01),
    "lamb": lambda ps: td.optim.LAMB(ps, lr=0.01) if hasattr(td.optim, "LAMB") else td.optim.RMSprop(ps, lr=0.01),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_synchronous_training_equals_one_process_bit_by_bit(cluster, optimizer):
    make, workers, steps = OPTIMIZERS[optimizer], 3, 4
    models = [network() for _ in range(workers)]

    def work(k):
        server = ParameterServer(
            models[k], make(models[k].parameters()), mode="sync", cluster=cluster, worker=k, workers=workers
        )
        while server.version < steps:
            loss_of(models[k], batch(server.version, k)).backward()
            assert server.step().applied

    in_threads(workers, work)
    expected = alone(make, workers, steps)
    assert all(same(m, expected) for m in models)


def test_several_workers_of_one_program_are_the_same_as_several_programs(cluster):
    make, steps = OPTIMIZERS["adam"], 3
    model = network()
    server = ParameterServer(model, make(model.parameters()), cluster=cluster, worker=range(3), workers=3)
    while server.version < steps:
        for k in range(3):
            loss_of(model, batch(server.version, k)).backward()
            server.collect(k)
        assert server.step().applied
    assert same(model, alone(make, 3, steps))
    with pytest.raises(ValueError, match="no gradients of worker 0, 1, 2"):
        server.push()
    with pytest.raises(ValueError, match="none of"):
        server.collect(3)


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


def test_learning_rates_follow_the_worker_and_frozen_parameters_stay(cluster):
    model = network()
    model[0].weight.requires_grad_(False)
    frozen = model[0].weight.detach().clone()
    opt = td.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.0)
    server = ParameterServer(model, opt, mode="async", cluster=cluster)
    before = model[2].weight.detach().clone()
    loss_of(model, batch(0, 0)).backward()
    server.step()
    assert bool((model[2].weight.detach() == before).all())
    opt.param_groups[0]["lr"] = 0.5
    loss_of(model, batch(1, 0)).backward()
    server.step()
    assert not bool((model[2].weight.detach() == before).all())
    assert bool((model[0].weight.detach() == frozen).all())


def test_sparse_gradients_of_an_embedding_move_as_rows(cluster):
    td.manual_seed(0)
    table = td.nn.Embedding(1000, 8, sparse=True)
    other = td.nn.Embedding(1000, 8, sparse=True)
    with td.no_grad():
        other.weight.copy_(table.weight)
    server = ParameterServer(table, td.optim.Adagrad(table.parameters(), lr=0.1), mode="async", cluster=cluster)
    before = server.bytes["pushed"]
    ids = td.tensor([3, 999, 3, 500])
    (table(ids) * td.arange(4.0).reshape(4, 1)).sum().backward()
    server.step()
    assert server.bytes["pushed"] - before == 3 * (8 + 8 * 4)
    opt = td.optim.Adagrad(other.parameters(), lr=0.1)
    (other(ids) * td.arange(4.0).reshape(4, 1)).sum().backward()
    opt.step()
    assert bool((table.weight.detach() == other.weight.detach()).all())


def test_bad_arguments(cluster):
    model = network()
    opt = td.optim.SGD(model.parameters(), lr=0.1)
    for wrong, text in [
        ({"mode": "fast"}, "mode='fast'"), ({"mode": "backup"}, "needed"), ({"mode": "sync", "needed": 1}, "needed"),
        ({"mode": "bounded"}, "staleness"), ({"worker": 2, "workers": 2}, "worker=2"),
        ({"mode": "backup", "needed": 3, "workers": 2}, "between 1 and 2"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=text):
            ParameterServer(model, opt, cluster=cluster, **wrong)
    with pytest.raises(ValueError, match=r"\(3,\) is missing"):
        ParameterServer(model, td.optim.SGD(list(model.parameters())[:3], lr=0.1), cluster=cluster)

    class Own(td.optim.SGD):
        pass

    with pytest.raises(td.UnsupportedError, match="inside of a function"):
        ParameterServer(model, Own(model.parameters(), lr=0.1), cluster=cluster)


def test_gradients_of_compiled_functions_are_pushed(cluster):
    model = network()
    server = ParameterServer(model, td.optim.Adam(model.parameters(), lr=0.01), cluster=cluster)

    @td.compile
    def gradients(x, y):
        loss = td.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    for step in range(4):
        gradients(*batch(step, 0))
        assert server.step().applied
    found = [p.detach() for p in model.parameters()]
    expected = alone(lambda ps: td.optim.Adam(ps, lr=0.01), 1, 4)
    assert all(td.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(found, expected, strict=True))
