"""Distributions of numbers between bounds."""

import numpy as np
import pytest

import tandem as td
from tandem import distributions as D

stats = pytest.importorskip("scipy.stats")


def test_beta_of_many_parameters_is_scipys():
    a, b = np.array([0.7, 2.0, 5.0]), np.array([3.0, 1.0, 0.5])
    made, theirs = D.Beta(td.tensor(a), td.tensor(b)), stats.beta(a, b)
    x = np.array([0.2, 0.5, 0.9])
    np.testing.assert_allclose(made.log_prob(td.tensor(x)).numpy(), theirs.logpdf(x), rtol=1e-9)
    np.testing.assert_allclose(made.entropy().numpy(), theirs.entropy(), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(made.variance.numpy(), theirs.var(), rtol=1e-9)


@pytest.mark.parametrize("p", [0.2, 0.499999, 0.5, 0.8])
def test_continuous_bernoulli_is_a_density(p):
    """Its constant has no limit problem at one half: the density adds up to 1, its mean is the mean, its inverse the inverse."""
    made = D.ContinuousBernoulli(td.tensor(p, dtype=td.float64))
    x = np.linspace(0, 1, 20_001)
    density = made.log_prob(td.tensor(x)).exp().numpy()
    assert np.trapezoid(density, x) == pytest.approx(1, abs=1e-6)
    assert np.trapezoid(density * x, x) == pytest.approx(made.mean.item(), abs=1e-5)
    inner = td.tensor([0.1, 0.6, 0.95], dtype=td.float64)
    np.testing.assert_allclose(made.icdf(made.cdf(inner)).numpy(), inner.numpy(), rtol=1e-5)
