"""Probability distributions: sampling, densities, entropies and divergences, under PyTorch's names.

    policy = td.distributions.Categorical(logits=model(state))
    action = policy.sample()
    loss = -policy.log_prob(action) * reward

Each is plain code over operators: it runs eagerly and inside td.compile, and gradients go through `rsample` and `log_prob`.
"""

from tandem.distributions import constraint_registry, constraints, transforms
from tandem.distributions.base import Distribution, ExponentialFamily, Independent
from tandem.distributions.bounded import Beta, ContinuousBernoulli
from tandem.distributions.circular import VonMises
from tandem.distributions.constraint_registry import biject_to, transform_to
from tandem.distributions.continuous import (
    Cauchy,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Laplace,
    Normal,
    StudentT,
    Uniform,
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
)
from tandem.distributions.divergence import kl_divergence, register_kl
from tandem.distributions.matrices import LKJCholesky, Wishart
from tandem.distributions.mixture import MixtureSameFamily
from tandem.distributions.multivariate import Dirichlet, LowRankMultivariateNormal, MultivariateNormal
from tandem.distributions.positive import (
    Chi2,
    Exponential,
    FisherSnedecor,
    Gamma,
    GeneralizedPareto,
    Pareto,
    Weibull,
)
from tandem.distributions.relaxed import (
    LogitRelaxedBernoulli,
    OneHotCategoricalStraightThrough,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
)
from tandem.distributions.transformed import (
    InverseGamma,
    Kumaraswamy,
    LogisticNormal,
    LogNormal,
    TransformedDistribution,
)
from tandem.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "CatTransform", "Categorical", "Cauchy", "Chi2",
    "ComposeTransform", "ContinuousBernoulli", "CorrCholeskyTransform", "CumulativeDistributionTransform", "Dirichlet",
    "Distribution", "ExpTransform", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto", "Geometric",
    "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "IndependentTransform", "InverseGamma", "Kumaraswamy", "LKJCholesky",
    "Laplace", "LogNormal", "LogisticNormal", "LogitRelaxedBernoulli", "LowRankMultivariateNormal", "LowerCholeskyTransform",
    "MixtureSameFamily", "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical",
    "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "PositiveDefiniteTransform", "PowerTransform", "RelaxedBernoulli",
    "RelaxedOneHotCategorical", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform",
    "StickBreakingTransform", "StudentT", "TanhTransform", "Transform", "TransformedDistribution", "Uniform", "VonMises",
    "Weibull", "Wishart", "biject_to", "constraint_registry", "constraints", "identity_transform", "kl_divergence", "register_kl",
    "transform_to", "transforms",
]  # fmt: skip
