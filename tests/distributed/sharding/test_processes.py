"""Sharded tensors where ranks are processes: the same values and gradients as on one rank, eagerly and compiled."""

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist

RNG = np.random.default_rng(0)
X = RNG.standard_normal((301, 57)).astype(np.float32)
W = RNG.standard_normal((57, 130)).astype(np.float32)


def loss_of(x, w):
    return td.softmax(td.tanh(x @ w), -1).pow(2).sum() + (x.mean(axis=0) ** 2).sum()


def whole(t):
    return t.full_tensor().detach().numpy()


def compare_gradients(mesh, x_placements, w_placements):
    x, w = td.tensor(X, requires_grad=True), td.tensor(W, requires_grad=True)
    expected = loss_of(x, w)
    expected.backward()
    for run in (loss_of, td.compile(loss_of)):
        a = dist.distribute_tensor(td.tensor(X), mesh, x_placements).requires_grad_()
        b = dist.distribute_tensor(td.tensor(W), mesh, w_placements).requires_grad_()
        loss = run(a, b)
        loss.backward()
        np.testing.assert_allclose(whole(loss), expected.detach().numpy(), rtol=1e-4)
        np.testing.assert_allclose(whole(a.grad), x.grad.numpy(), rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(whole(b.grad), w.grad.numpy(), rtol=1e-3, atol=1e-5)


def make_model():
    td.manual_seed(0)
    return td.nn.Sequential(td.nn.Linear(57, 512), td.nn.GELU(), td.nn.Linear(512, 3))


def train(model, x):
    optimizer = td.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @td.compile
    def step(x):
        loss = (model(x) ** 2).mean()
        loss.backward()
        td.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return [step(x).item() for _ in range(4)]


def work():
    n = dist.get_world_size()
    mesh = dist.Mesh((2, 2), ("data", "model")) if n == 4 else dist.Mesh(n, "model")
    data = [dist.Shard(0)] if n == 4 else []  # along the axis "data"
    same = [dist.Replicate()] if n == 4 else []
    compare_gradients(mesh, [*data, dist.Replicate()], [*same, dist.Shard(1)])
    compare_gradients(mesh, [*data, dist.Shard(1)], [*same, dist.Shard(0)])
    compare_gradients(mesh, [*same, dist.Shard(0)], [*same, dist.Replicate()])
    model = make_model()
    dist.parallelize_module(model, mesh, {"0": dist.ColwiseParallel(), "2": dist.RowwiseParallel()}, axis="model")
    losses = train(model, dist.distribute_tensor(td.tensor(X), mesh, [*data, dist.Replicate()]))
    return losses, [whole(p) for p in model.parameters()]


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 4])
def test_processes_compute_and_train_as_one_rank_does(n):
    model = make_model()
    expected = train(model, td.tensor(X))
    for losses, parameters in dist.spawn(work, n, timeout=300):
        np.testing.assert_allclose(losses, expected, rtol=1e-3)
        for got, p in zip(parameters, model.parameters(), strict=True):
            np.testing.assert_allclose(got, p.detach().numpy(), rtol=2e-3, atol=2e-4)
