"""Parameter servers: the same as one process, in every mode; gradients that count once, late ones, stale ones."""

import pytest

import tandem as td
from tandem.distributed import Cluster, ParameterServer
from tests.distributed.servers.workers import alone, batch, in_threads, loss_of, network, same


@pytest.fixture
def cluster():
    made = Cluster({"ps": 2}, engine="threads")
    yield made
    made.close()


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
    with pytest.raises(td.UnsupportedError, match=r"LBFGS\.step needs a closure"):
        ParameterServer(model, td.optim.LBFGS(model.parameters()), cluster=cluster)


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


class Clipped(td.optim.SGD):
    """A step of a user's own around another one's."""

    def __init__(self, params, lr, most):
        super().__init__(params, lr=td.tensor(lr))  # a tensor, as some programs have it
        self.most = most

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = td.clamp(p.grad, -self.most, self.most)
        return super().step(closure)


class ByHand(td.optim.Optimizer):
    """One that is no rule, with state that is no tensor."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @td.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                own = self.state[p]
                own["steps"] = own.get("steps", 0) + 1
                p -= group["lr"] / own["steps"] * p.grad


@pytest.mark.parametrize("make", [lambda ps: Clipped(ps, 0.1, 0.01), lambda ps: ByHand(ps, 0.1)])
def test_optimisers_of_users_run_on_servers(cluster, make):
    model = network()
    server = ParameterServer(model, make(model.parameters()), cluster=cluster)
    for step in range(4):
        loss_of(model, batch(step, 0)).backward()
        server.step()
    assert same(model, alone(make, 1, 4))
