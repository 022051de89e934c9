"""Probability distributions: sampling, densities, entropies and divergences, under PyTorch's names.

    policy = td.distributions.Categorical(logits=model(state))
    action = policy.sample()
    loss = -policy.log_prob(action) * reward

Each is plain code over operators: it runs eagerly and inside td.compile, and gradients go through `rsample` and `log_prob`.
"""

from tandem.aliases import path as _path
from tandem.distributions import constraint_registry, constraints, transforms, utils
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
    "transform_to", "transforms", "utils",
]  # fmt: skip

# PyTorch has a file for every family: `from tandem.distributions.normal import Normal`.
_FILES = {
    "bernoulli": [Bernoulli], "beta": [Beta], "binomial": [Binomial], "categorical": [Categorical], "cauchy": [Cauchy],
    "chi2": [Chi2], "continuous_bernoulli": [ContinuousBernoulli], "dirichlet": [Dirichlet], "distribution": [Distribution],
    "exp_family": [ExponentialFamily], "exponential": [Exponential], "fishersnedecor": [FisherSnedecor], "gamma": [Gamma],
    "generalized_pareto": [GeneralizedPareto], "geometric": [Geometric], "gumbel": [Gumbel], "half_cauchy": [HalfCauchy],
    "half_normal": [HalfNormal], "independent": [Independent], "inverse_gamma": [InverseGamma], "kl": [kl_divergence, register_kl],
    "kumaraswamy": [Kumaraswamy], "laplace": [Laplace], "lkj_cholesky": [LKJCholesky], "log_normal": [LogNormal],
    "logistic_normal": [LogisticNormal], "lowrank_multivariate_normal": [LowRankMultivariateNormal],
    "mixture_same_family": [MixtureSameFamily], "multinomial": [Multinomial], "multivariate_normal": [MultivariateNormal],
    "negative_binomial": [NegativeBinomial], "normal": [Normal],
    "one_hot_categorical": [OneHotCategorical, OneHotCategoricalStraightThrough], "pareto": [Pareto], "poisson": [Poisson],
    "relaxed_bernoulli": [LogitRelaxedBernoulli, RelaxedBernoulli], "relaxed_categorical": [RelaxedOneHotCategorical],
    "studentT": [StudentT], "transformed_distribution": [TransformedDistribution], "uniform": [Uniform], "von_mises": [VonMises],
    "weibull": [Weibull], "wishart": [Wishart],
}  # fmt: skip
for _name, _things in _FILES.items():
    _path(f"tandem.distributions.{_name}", {thing.__name__: thing for thing in _things})
