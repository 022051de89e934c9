"""Functions of parts."""

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist
from tests.distributed.sharding.ranks import P, R, S, on_mesh, sharded

RNG = np.random.default_rng(0)


X = RNG.standard_normal((4, 6)).astype(np.float32)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("placements", [(R,), (S(0),), (P(),)])
def test_shard_map_runs_a_function_of_parts(placements, compiled):
    spec = dist.PartitionSpec

    def work(mesh):
        group = mesh.get_group("a")

        def loss(x, w):
            return dist.functional.all_reduce((x @ w).sum(), group=group) ** 2

        run = dist.shard_map(loss, mesh, (spec("a"), spec()), spec())
        run = td.compile(run) if compiled else run
        x = sharded(X, mesh, placements, True)
        w = sharded(np.ones((6, 2), np.float32), mesh, [R], True)
        y = run(x, w)
        y.backward()
        return y.item(), x.grad.numpy(), w.grad.numpy()

    total = 2 * X.sum()
    for y, gx, gw in on_mesh((2,), work):
        np.testing.assert_allclose(y, total**2, rtol=1e-4)
        np.testing.assert_allclose(gx, np.full_like(X, 4 * total), rtol=1e-4)
        np.testing.assert_allclose(gw, np.repeat(2 * total * X.sum(0)[:, None], 2, 1), rtol=1e-3, atol=1e-4)
