"""Distributions of vectors."""

import numpy as np
import pytest

import tandem as td
from tandem import distributions as D

stats = pytest.importorskip("scipy.stats")


def test_a_dirichlet_of_ones_has_its_gradient():
    """xlogy(0, y) has the derivative log(y) by its first argument."""
    a = td.ones(2, dtype=td.float64, requires_grad=True)
    (g,) = td.autograd.grad(D.Dirichlet(a).log_prob(td.tensor([0.25, 0.75], dtype=td.float64)), a)
    np.testing.assert_allclose(g.numpy(), np.log([0.25, 0.75]) + 1, rtol=1e-9)


def test_vectors():
    a = td.tensor([0.7, 1.5, 2.0])
    theirs = stats.dirichlet(a.numpy().astype(np.float64))
    x = td.tensor([0.2, 0.3, 0.5])
    np.testing.assert_allclose(D.Dirichlet(a).log_prob(x).item(), theirs.logpdf([0.2, 0.3, 0.5]), rtol=1e-5)
    np.testing.assert_allclose(D.Dirichlet(a).entropy().item(), theirs.entropy(), rtol=1e-4)
    np.testing.assert_allclose(D.Dirichlet(a).variance.numpy(), theirs.var(), rtol=1e-5)
    np.testing.assert_allclose(D.Dirichlet(a).sample((4,)).sum(-1).numpy(), np.ones(4), rtol=1e-5)
    cov = np.array([[2.0, 0.3], [0.3, 0.5]])
    loc, point = np.array([0.1, -0.4]), np.array([0.7, 0.2])
    theirs = stats.multivariate_normal(loc, cov)
    made = [
        D.MultivariateNormal(td.tensor(loc), covariance_matrix=td.tensor(cov)),
        D.MultivariateNormal(td.tensor(loc), precision_matrix=td.tensor(np.linalg.inv(cov))),
        D.MultivariateNormal(td.tensor(loc), scale_tril=td.tensor(np.linalg.cholesky(cov))),
    ]
    for d in made:
        np.testing.assert_allclose(d.log_prob(td.tensor(point)).item(), theirs.logpdf(point), rtol=1e-8)
        np.testing.assert_allclose(d.entropy().item(), theirs.entropy(), rtol=1e-8)
        np.testing.assert_allclose(d.covariance_matrix.numpy(), cov, rtol=1e-8)
    td.manual_seed(0)
    np.testing.assert_allclose(np.cov(made[0].sample((4000,)).numpy().T), cov, atol=0.15)
