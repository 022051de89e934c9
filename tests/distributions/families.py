"""Families and the same of SciPy, with points to compare them at."""

import math

import pytest

from tandem import distributions as D

stats = pytest.importorskip("scipy.stats")


CONTINUOUS = [
    (D.Normal(0.3, 1.7), stats.norm(0.3, 1.7), [-1.0, 0.2, 2.5]),
    (D.LogNormal(0.3, 0.7), stats.lognorm(0.7, scale=math.exp(0.3)), [0.5, 1.2, 2.5]),
    (D.Laplace(0.3, 1.7), stats.laplace(0.3, 1.7), [-1.0, 0.2, 2.5]),
    (D.Cauchy(0.3, 1.7), stats.cauchy(0.3, 1.7), [-1.0, 0.2, 2.5]),
    (D.Gumbel(0.3, 1.7), stats.gumbel_r(0.3, 1.7), [-1.0, 0.2, 2.5]),
    (D.Uniform(-1.0, 2.0), stats.uniform(-1, 3), [-0.9, 0.2, 1.5, 3.0]),
    (D.Exponential(1.7), stats.expon(scale=1 / 1.7), [0.1, 1.0, 2.5]),
    (D.Gamma(2.3, 1.7), stats.gamma(2.3, scale=1 / 1.7), [0.1, 1.0, 2.5]),
    (D.Chi2(3.0), stats.chi2(3), [0.1, 1.0, 2.5]),
    (D.Beta(2.3, 0.7), stats.beta(2.3, 0.7), [0.1, 0.5, 0.9]),
    (D.StudentT(3.5, 0.3, 1.7), stats.t(3.5, 0.3, 1.7), [-1.0, 0.2, 2.5]),
    (D.HalfNormal(1.7), stats.halfnorm(scale=1.7), [0.1, 1.0, 2.5]),
    (D.HalfCauchy(1.7), stats.halfcauchy(scale=1.7), [0.1, 1.0, 2.5]),
    (D.Weibull(1.7, 2.3), stats.weibull_min(2.3, scale=1.7), [0.1, 1.0, 2.5]),
    (D.Pareto(1.7, 3.3), stats.pareto(3.3, scale=1.7), [1.8, 2.5, 4.0]),
]


DISCRETE = [
    (D.Bernoulli(0.3), stats.bernoulli(0.3), [0.0, 1.0]),
    (D.Bernoulli(logits=0.4), stats.bernoulli(1 / (1 + math.exp(-0.4))), [0.0, 1.0]),
    (D.Geometric(0.3), stats.geom(0.3, loc=-1), [0.0, 1.0, 4.0]),
    (D.Binomial(7, 0.3), stats.binom(7, 0.3), [0.0, 3.0, 7.0]),
    (D.NegativeBinomial(4.0, 0.3), stats.nbinom(4, 0.7), [0.0, 3.0, 7.0]),
    (D.Poisson(2.4), stats.poisson(2.4), [0.0, 1.0, 4.0]),
]
