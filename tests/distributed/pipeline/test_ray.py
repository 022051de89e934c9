"""Stages in Ray actors of one host, which meet by a key-value service of the driver."""

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist
from tandem.distributed.store import Service, Store

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 16)).astype(np.float32)
W = [RNG.standard_normal((16, 16)).astype(np.float32) * 0.25 for _ in range(4)]


def loss_of(weights, x):
    for w in weights:
        x = td.tanh(x @ w)
    return x.square().mean()


class Stage:
    """One rank."""

    def __init__(self, rank: int, size: int, address: str):
        dist.init_process_group(rank=rank, world_size=size, store=Store(address), timeout=300)

    def gradients(self, **options):
        weights = [td.tensor(w, requires_grad=True) for w in W]
        x = td.tensor(X)
        pipe = dist.Pipeline(lambda x: loss_of(weights, x), (x,), stages=2, **options)
        loss = pipe.step(x).item()
        return loss, [w.grad.numpy() if w.grad is not None else None for w in weights]


@pytest.mark.slow  # Ray takes seconds to start
@pytest.mark.parametrize("schedule", ["1f1b", "zero_bubble"])
def test_a_pipeline_of_ray_actors_gives_the_gradients_of_one_process(schedule):
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    weights = [td.tensor(w, requires_grad=True) for w in W]
    loss = loss_of(weights, td.tensor(X))
    loss.backward()
    service = Service()
    ray.init(num_cpus=2, log_to_driver=False, configure_logging=False, include_dashboard=False)
    try:
        actors = [ray.remote(Stage).options(num_cpus=1).remote(rank, 2, service.address) for rank in range(2)]
        options = {"micro_batches": 4, "schedule": schedule}
        results = ray.get([a.gradients.remote(**options) for a in actors], timeout=300)
    finally:
        ray.shutdown()
        service.close()
    for found, gradients in results:
        assert found == pytest.approx(loss.item(), rel=1e-6)
        for g, w in zip(gradients, weights, strict=True):
            assert g is None or np.allclose(g, w.grad.numpy(), rtol=1e-5, atol=1e-6)
    assert all(any(g[i] is not None for _, g in results) for i in range(4))
