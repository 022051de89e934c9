"""Densities, entropies, quantiles and moments against SciPy; samples against their own moments and distribution function."""

import math

import numpy as np
import pytest

import tandem as td
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


def name_of(value):
    return type(value).__name__ if isinstance(value, D.Distribution) else ""


@pytest.mark.parametrize(("ours", "theirs", "points"), CONTINUOUS, ids=name_of)
def test_continuous(ours, theirs, points):
    close = lambda a, b: np.testing.assert_allclose(a.numpy(), b, rtol=2e-5, atol=2e-6)
    x = td.tensor(points)
    close(ours.log_prob(x), theirs.logpdf(points))
    close(ours.entropy(), theirs.entropy())
    if math.isfinite(theirs.mean()):
        close(ours.mean, theirs.mean())
        close(ours.variance, theirs.var())
        close(ours.stddev, theirs.std())
    for name, given, expected in (
        ("cdf", x, theirs.cdf(points)),
        ("icdf", td.tensor([0.1, 0.6]), theirs.ppf([0.1, 0.6])),
    ):
        if getattr(type(ours), name) is not getattr(D.Distribution, name):
            close(getattr(ours, name)(given), expected)


@pytest.mark.parametrize(("ours", "theirs", "points"), DISCRETE, ids=name_of)
def test_discrete(ours, theirs, points):
    np.testing.assert_allclose(ours.log_prob(td.tensor(points)).numpy(), theirs.logpmf(points), rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(ours.mean.numpy(), theirs.mean(), rtol=2e-5)
    np.testing.assert_allclose(ours.variance.numpy(), theirs.var(), rtol=2e-5)
    if type(ours).entropy is not D.Distribution.entropy:
        np.testing.assert_allclose(ours.entropy().numpy(), theirs.entropy(), rtol=2e-5)


@pytest.mark.parametrize(("ours", "theirs"), [c[:2] for c in CONTINUOUS + DISCRETE], ids=name_of)
def test_samples_follow_the_distribution(ours, theirs):
    td.manual_seed(3)
    drawn = ours.sample((2000,)).numpy().astype(np.float64)
    assert drawn.shape == (2000,)
    if hasattr(theirs.dist, "pdf"):
        assert stats.kstest(drawn, theirs.cdf).pvalue > 1e-3
    else:
        assert abs(drawn.mean() - theirs.mean()) < 5 * theirs.std() / math.sqrt(2000)
        assert (drawn == np.floor(drawn)).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: D.Normal(a, b),
        lambda a, b: D.Laplace(a, b),
        lambda a, b: D.Gumbel(a, b),
        lambda a, b: D.Uniform(a, a + b),
        lambda a, b: D.Gamma(a, b),
        lambda a, b: D.Weibull(a, b + 1),
        lambda a, b: D.Beta(a, b),
    ],
)
def test_gradients_of_the_mean_flow_through_samples(make):
    """The derivative of an average of samples is that of the mean, but for noise."""
    td.manual_seed(1)
    a, b = (td.tensor(v, dtype=td.float64, requires_grad=True) for v in (1.3, 0.8))
    got = td.autograd.grad(make(a, b).rsample((20_000,)).mean(), (a, b), allow_unused=True)
    expected = td.autograd.grad(make(a, b).mean, (a, b), allow_unused=True)
    for g, e in zip(got, expected, strict=True):
        assert abs((0 if g is None else g.item()) - (0 if e is None else e.item())) < 0.05


def test_gamma_samples_have_the_derivative_at_a_fixed_quantile():
    a = td.tensor([0.5, 1.0, 4.0], dtype=td.float64, requires_grad=True)
    td.manual_seed(0)
    x = D.Gamma(a, 1.0).rsample()
    (g,) = td.autograd.grad(x.sum(), a)
    at = stats.gamma.cdf(x.detach().numpy(), a.detach().numpy())
    h = 1e-5
    high, low = (stats.gamma.ppf(at, a.detach().numpy() + s * h) for s in (1, -1))
    np.testing.assert_allclose(g.numpy(), (high - low) / (2 * h), rtol=1e-4)


def test_categorical():
    probs = td.tensor([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
    d = D.Categorical(probs=probs * 3)
    assert d.batch_shape == (2,)
    np.testing.assert_allclose(d.probs.numpy(), probs.numpy(), rtol=1e-6)
    np.testing.assert_allclose(d.log_prob(td.tensor([2, 0])).numpy(), np.log([0.7, 0.5]), rtol=1e-5)
    assert d.log_prob(td.tensor([[0], [1], [2]])).shape == (3, 2)
    np.testing.assert_allclose(d.entropy().numpy(), [stats.entropy([0.1, 0.2, 0.7]), math.log(2)], rtol=1e-5)
    td.manual_seed(0)
    drawn = d.sample((3000,))
    assert drawn.shape == (3000, 2)
    np.testing.assert_allclose(td.mean(td.nn.functional.one_hot(drawn, 3).float(), 0).numpy(), probs.numpy(), atol=0.04)
    np.testing.assert_allclose(D.Categorical(logits=td.log(probs[0])).probs.numpy(), probs[0].numpy(), rtol=1e-5)
    assert D.OneHotCategorical(probs=probs).sample((4,)).sum(-1).tolist() == [[1.0, 1.0]] * 4
    many = D.Multinomial(20, probs=probs)
    assert many.sample().sum(-1).tolist() == [20.0, 20.0]
    np.testing.assert_allclose(
        D.Multinomial(3, probs=probs[0]).log_prob(td.tensor([1.0, 0.0, 2.0])).item(),
        stats.multinomial(3, [0.1, 0.2, 0.7]).logpmf([1, 0, 2]), rtol=1e-5,
    )  # fmt: skip


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


def test_mixture():
    mix = D.MixtureSameFamily(
        D.Categorical(td.tensor([0.3, 0.7])), D.Normal(td.tensor([-2.0, 1.0]), td.tensor([0.5, 1.0]))
    )
    expected = 0.3 * stats.norm(-2, 0.5).pdf(0.4) + 0.7 * stats.norm(1, 1).pdf(0.4)
    assert mix.prob(td.tensor(0.4)).item() == pytest.approx(expected, rel=1e-5)
    td.manual_seed(0)
    drawn = mix.sample((4000,))
    assert drawn.mean().item() == pytest.approx(mix.mean.item(), abs=0.1)
    assert drawn.var().item() == pytest.approx(mix.variance.item(), rel=0.1)


def test_inside_compiled_functions():
    def loss_of(logits):
        policy = D.Categorical(logits=logits)
        action = policy.sample()
        return -(policy.log_prob(action) * td.tensor([1.0, -1.0])).mean() - 0.1 * policy.entropy().mean()

    logits = td.tensor([[0.1, 0.2, 0.3], [1.0, 0.0, -1.0]], requires_grad=True)
    td.manual_seed(4)
    expected = td.autograd.grad(loss_of(logits), logits)[0]
    td.manual_seed(4)
    got = td.compile(lambda x: td.autograd.grad(loss_of(x), x)[0])(logits)
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-6)


def test_bad_parameters_are_named():
    with pytest.raises(td.ValueRangeError, match="scale must be greater than 0"):
        D.Normal(0.0, -1.0, validate_args=True)
    with pytest.raises(td.ValueRangeError, match="either probs or logits"):
        D.Bernoulli()
    with pytest.raises(td.UnsupportedError, match="no rule for Gumbel and Laplace"):
        D.kl_divergence(D.Gumbel(0.0, 1.0), D.Laplace(1.0, 1.0))
    with pytest.raises(td.UnsupportedError, match="samples have no gradient"):
        D.Poisson(1.0).rsample()
    with pytest.raises(td.ShapeError, match="axis of classes"):
        D.Categorical(probs=0.5)
