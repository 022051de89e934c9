"""L-BFGS."""

from __future__ import annotations

import numpy as np

import tandem as td
from tandem import nn, optim


def test_lbfgs_solves_quadratics_in_few_steps():
    rng = np.random.default_rng(0)
    q = rng.normal(size=(6, 6))
    matrix, goal = td.tensor(q @ q.T + np.eye(6)), td.tensor(rng.normal(size=6))
    x = nn.Parameter(td.zeros(6, dtype=td.float64))
    o = optim.LBFGS([x], line_search_fn="strong_wolfe", max_iter=60, tolerance_change=1e-12)

    def closure():
        o.zero_grad()
        loss = 0.5 * (x * (matrix @ x)).sum() - (goal * x).sum()
        loss.backward()
        return loss

    o.step(closure)
    np.testing.assert_allclose(x.detach().numpy(), np.linalg.solve(matrix.numpy(), goal.numpy()), rtol=1e-4, atol=1e-6)
    assert o.state[x]["n_iter"] <= 60
