"""Distributions of positive numbers."""

import numpy as np
import pytest

import tandem as td
from tandem import distributions as D

stats = pytest.importorskip("scipy.stats")


def test_gamma_samples_have_the_derivative_at_a_fixed_quantile():
    a = td.tensor([0.5, 1.0, 4.0], dtype=td.float64, requires_grad=True)
    td.manual_seed(0)
    x = D.Gamma(a, 1.0).rsample()
    (g,) = td.autograd.grad(x.sum(), a)
    at = stats.gamma.cdf(x.detach().numpy(), a.detach().numpy())
    h = 1e-5
    high, low = (stats.gamma.ppf(at, a.detach().numpy() + s * h) for s in (1, -1))
    np.testing.assert_allclose(g.numpy(), (high - low) / (2 * h), rtol=1e-4)
