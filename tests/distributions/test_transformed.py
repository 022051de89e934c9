"""Distributions through transforms."""

import numpy as np
import pytest

import tandem as td
from tandem import distributions as D

stats = pytest.importorskip("scipy.stats")


def test_a_flow_is_trained_compiled():
    """A step through rsample and log_prob of a transformed distribution is one program, with the eager result."""

    def run(wrap):
        td.manual_seed(0)
        loc = td.nn.Parameter(td.zeros(2))
        optimizer = td.optim.Adam([loc], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            flow = D.TransformedDistribution(
                D.Independent(D.Normal(loc, td.ones(2)), 1), [D.AffineTransform(0.5, 2.0), D.TanhTransform()]
            )
            loss = -flow.log_prob(x).mean() + flow.rsample((4,)).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(step)
        x = td.tensor([[0.2, -0.3], [0.7, 0.1]])
        return [step(x).item() for _ in range(3)]

    np.testing.assert_allclose(run(td.compile), run(lambda f: f), rtol=1e-5)
