"""Distributions of matrices."""

import numpy as np
import pytest

import tandem as td
from tandem import distributions as D

stats = pytest.importorskip("scipy.stats")


def test_matrices():
    td.manual_seed(0)
    v = td.tensor([[1.0, 0.3], [0.3, 0.5]])
    d = D.Wishart(5.0, v)
    np.testing.assert_allclose(d.log_prob(v * 2).item(), stats.wishart(5, v.numpy()).logpdf(2 * v.numpy()), rtol=1e-5)
    np.testing.assert_allclose(d.entropy().item(), stats.wishart(5, v.numpy()).entropy(), rtol=1e-5)
    np.testing.assert_allclose(d.sample((4000,)).mean(0).numpy(), d.mean.numpy(), atol=0.15)
    assert D.kl_divergence(d, D.Wishart(6.0, v * 0.8)).item() > 0
    with pytest.raises(td.ValueRangeError, match="df must be greater than 1"):
        D.Wishart(1.0, v)
