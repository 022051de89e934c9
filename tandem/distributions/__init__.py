"""Probability distributions: sampling, densities, entropies and divergences, under PyTorch's names.

    policy = td.distributions.Categorical(logits=model(state))
    action = policy.sample()
    loss = -policy.log_prob(action) * reward

Each is plain code over operators: it runs eagerly and inside td.compile, and gradients go through `rsample` and `log_prob`.
"""

from tandem.distributions.base import Distribution, Independent
from tandem.distributions.continuous import (
    Beta,
    Cauchy,
    Chi2,
    Exponential,
    Gamma,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
    Pareto,
    StudentT,
    Uniform,
    Weibull,
)
from tandem.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    Multinomial,
    NegativeBinomial,
    OneHotCategorical,
    Poisson,
    RelaxedOneHotCategorical,
)
from tandem.distributions.divergence import kl_divergence, register_kl
from tandem.distributions.mixture import MixtureSameFamily
from tandem.distributions.multivariate import Dirichlet, MultivariateNormal

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "Dirichlet", "Distribution", "Exponential", "Gamma",
    "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "Laplace", "LogNormal", "MixtureSameFamily", "Multinomial",
    "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical", "Pareto", "Poisson", "RelaxedOneHotCategorical",
    "StudentT", "Uniform", "Weibull", "kl_divergence", "register_kl",
]  # fmt: skip
