"""Divergences."""

import math

import numpy as np
import pytest

import tandem as td
from tandem import distributions as D

stats = pytest.importorskip("scipy.stats")


c = D.constraints


def test_a_family_of_ones_own():
    class Double(D.ExponentialFamily):
        """exp(eta x) on positive numbers, which is Exponential."""

        arg_constraints = {"rate": c.positive}
        support = c.positive
        _mean_carrier_measure = 0

        def __init__(self, rate, validate_args=None):
            self.rate = rate
            super().__init__(rate.shape, (), validate_args)

        _natural_params = property(lambda self: (-self.rate,))

        def _log_normalizer(self, x):
            return -td.log(-x)

    a, b = td.tensor([0.5, 2.0]), td.tensor([1.0, 1.5])
    np.testing.assert_allclose(Double(a).entropy().detach().numpy(), D.Exponential(a).entropy().numpy(), rtol=1e-6)
    expected = D.kl_divergence(D.Exponential(a), D.Exponential(b))
    np.testing.assert_allclose(D.kl_divergence(Double(a), Double(b)).detach().numpy(), expected.numpy(), rtol=1e-5)
    assert Double(a).expand((3, 2)).rate.shape == (3, 2)
    with pytest.raises(td.ValueRangeError, match="rate must be greater than 0"):
        Double(-a, validate_args=True)


def name_of(value):
    return type(value).__name__ if isinstance(value, D.Distribution) else ""


PAIRS = [
    (D.Normal(0.1, 1.2), D.Normal(-0.4, 0.7)),
    (D.LogNormal(0.1, 0.4), D.LogNormal(-0.4, 0.7)),
    (D.Laplace(0.1, 1.2), D.Laplace(-0.4, 0.7)),
    (D.Exponential(1.2), D.Exponential(0.7)),
    (D.Gamma(1.7, 1.2), D.Gamma(2.5, 0.7)),
    (D.Beta(1.7, 1.2), D.Beta(2.5, 0.7)),
    (D.Uniform(0.0, 1.0), D.Uniform(-1.0, 2.0)),
    (D.Bernoulli(0.3), D.Bernoulli(0.6)),
    (D.Poisson(1.4), D.Poisson(2.1)),
    (D.Geometric(0.4), D.Geometric(0.6)),
    (D.Categorical(td.tensor([0.2, 0.8])), D.Categorical(td.tensor([0.6, 0.4]))),
    (D.Dirichlet(td.tensor([1.5, 2.0])), D.Dirichlet(td.tensor([0.9, 1.2]))),
    (D.MultivariateNormal(td.zeros(2), td.eye(2)), D.MultivariateNormal(td.ones(2), 2 * td.eye(2))),
    (D.Independent(D.Normal(td.zeros(2), 1.0), 1), D.Independent(D.Normal(td.ones(2), 2.0), 1)),
]  # fmt: skip


@pytest.mark.parametrize(("p", "q"), PAIRS, ids=name_of)
def test_divergences_are_expectations(p, q):
    td.manual_seed(2)
    x = p.sample((4000,))
    each = (p.log_prob(x) - q.log_prob(x)).numpy().astype(np.float64)
    assert abs(each.mean() - D.kl_divergence(p, q).item()) < 5 * each.std() / math.sqrt(4000) + 1e-5
    assert abs(D.kl_divergence(p, p).item()) < 1e-5
