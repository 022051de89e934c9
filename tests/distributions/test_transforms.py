"""Transforms: there and back, their determinants, and distributions of what they make."""

import contextlib
import math
import pickle

import numpy as np
import pytest

import tandem as td
from tandem import distributions as D

stats = pytest.importorskip("scipy.stats")
c = D.constraints
ONES = td.ones(2, dtype=td.float64)

ONE_TO_ONE = {
    "exp": D.ExpTransform(),
    "sigmoid": D.SigmoidTransform(),
    "tanh": D.TanhTransform(),
    "softplus": D.SoftplusTransform(),
    "affine": D.AffineTransform(td.tensor([1.0, 2.0, 3.0], dtype=td.float64), -2.0),
    "stick": D.StickBreakingTransform(),
    "correlations": D.CorrCholeskyTransform(),
    "cat": D.CatTransform([D.ExpTransform(), D.identity_transform], -1, [2, 1]),
    "composed": D.ComposeTransform([D.TanhTransform(), D.AffineTransform(2.0, 1.0), D.PowerTransform(-1.0)]),
}


@pytest.mark.parametrize("name", ONE_TO_ONE)
def test_there_and_back(name):
    t = ONE_TO_ONE[name]
    x = td.tensor([-0.7, 0.2, 1.1], dtype=td.float64)
    y = t(x)
    assert t.codomain.check(y).all()
    np.testing.assert_allclose(t.inv(y).numpy(), x.numpy(), rtol=1e-9)
    assert t.inv.inv == t
    assert t.forward_shape((3,)) == y.shape
    assert t.inverse_shape(y.shape) == (3,)
    jacobian = td.autograd.functional.jacobian(lambda v: t(v).flatten(), x)
    if name == "stick":
        jacobian = jacobian[:-1]  # the last probability follows from the others
    if name == "correlations":
        jacobian = jacobian[[3, 6, 7]]  # below the diagonal
    expected = td.linalg.slogdet(jacobian).logabsdet
    np.testing.assert_allclose(t.log_abs_det_jacobian(x, y).sum().item(), expected.item(), rtol=1e-9)
    np.testing.assert_allclose(t.inv.log_abs_det_jacobian(y, x).sum().item(), -expected.item(), rtol=1e-9)


def test_the_cache_gives_the_very_input():
    t = D.TanhTransform(cache_size=1)
    x = td.tensor([30.0])
    y = t(x)
    assert t.inv(y) is x  # atanh(1) would be infinite
    assert not math.isfinite(D.TanhTransform().inv(y).item())
    assert pickle.loads(pickle.dumps(t)) == t


def test_a_flow_is_trained_compiled():
    """A step through rsample and log_prob of a transformed distribution is one program, with the eager result."""

    def run(wrap):
        td.manual_seed(0)
        loc = td.nn.Parameter(td.zeros(2))
        optimizer = td.optim.Adam([loc], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            flow = D.TransformedDistribution(
                D.Independent(D.Normal(loc, td.ones(2)), 1), [D.AffineTransform(0.5, 2.0), D.TanhTransform()]
            )
            loss = -flow.log_prob(x).mean() + flow.rsample((4,)).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(step)
        x = td.tensor([[0.2, -0.3], [0.7, 0.1]])
        return [step(x).item() for _ in range(3)]

    np.testing.assert_allclose(run(td.compile), run(lambda f: f), rtol=1e-5)


def test_ways_into_constraints():
    free = td.tensor([[0.3, -1.0], [2.0, 0.5]])
    for region in (
        c.positive,
        c.interval(-1.0, 4.0),
        c.simplex,
        c.less_than(2.0),
        c.lower_cholesky,
        c.positive_definite,
    ):
        assert region.check(D.transform_to(region)(free)).all()
    scale = D.transform_to(D.Normal.arg_constraints["scale"])
    assert (scale.inv(scale(free)) - free).abs().max() < 1e-6
    with pytest.raises(td.UnsupportedError, match="no transform to Boolean"):
        D.biject_to(c.boolean)

    class Even(c.Constraint):
        pass

    D.transform_to.register(Even, lambda region: D.AffineTransform(0.0, 2.0))
    assert D.transform_to(Even())(td.tensor(3.0)).item() == 6


def test_regions():
    x = td.tensor([-1.0, 0.0, 0.5, 2.0])
    assert c.nonnegative_integer.check(x).tolist() == [False, True, False, True]
    assert c.half_open_interval(0.0, 2.0).check(x).tolist() == [False, True, True, False]
    assert c.boolean.check(x).tolist() == [False, True, False, False]
    assert c.independent(c.real, 1).check(x).item()
    assert c.one_hot.check(td.eye(3)).all()
    assert c.corr_cholesky.check(D.LKJCholesky(4, 1.5).sample((3,))).all()
    assert not c.positive_definite.check(-td.eye(2))
    assert repr(c.positive) == "greater_than(lower_bound=0.0)"
    assert c.is_dependent(D.Uniform.support)
    assert not c.is_dependent(D.Uniform(0.0, 1.0).support)


FAMILIES = [
    (D.InverseGamma(2.3, 1.7), stats.invgamma(2.3, scale=1.7), [0.2, 1.0, 2.5]),
    (D.FisherSnedecor(3.0, 7.0), stats.f(3, 7), [0.2, 1.0, 2.5]),
    (D.GeneralizedPareto(0.3, 1.7, 0.2), stats.genpareto(0.2, 0.3, 1.7), [0.5, 1.0, 2.5]),
    (D.GeneralizedPareto(0.3, 1.7, 0.0), stats.genpareto(0.0, 0.3, 1.7), [0.5, 1.0, 2.5]),
    (D.GeneralizedPareto(0.3, 1.7, -0.2), stats.genpareto(-0.2, 0.3, 1.7), [0.5, 1.0, 2.5]),
    (D.VonMises(0.3, 1.7), stats.vonmises(1.7, 0.3), [-1.0, 0.2, 2.5]),
    (D.LogNormal(0.3, 0.7), stats.lognorm(0.7, scale=math.exp(0.3)), [0.5, 1.2, 2.5]),
]


@pytest.mark.parametrize(("ours", "theirs", "points"), FAMILIES)
def test_families_against_scipy(ours, theirs, points):
    x = td.tensor(points)
    np.testing.assert_allclose(ours.log_prob(x).numpy(), theirs.logpdf(points), rtol=3e-5)
    for name, at in (("cdf", x), ("icdf", td.tensor([0.1, 0.6]))):
        reference = {"cdf": theirs.cdf, "icdf": theirs.ppf}[name]
        with contextlib.suppress(td.UnsupportedError):
            np.testing.assert_allclose(getattr(ours, name)(at).numpy(), reference(at.numpy()), rtol=3e-5)
    if not isinstance(ours, D.VonMises):  # its variance is the circular one
        np.testing.assert_allclose(ours.variance.item(), theirs.var(), rtol=1e-4)
        np.testing.assert_allclose(ours.mean.item(), theirs.mean(), rtol=1e-4)
    td.manual_seed(1)
    drawn = ours.sample((2000,)).numpy().astype(np.float64)
    drawn = (drawn - 0.3 + math.pi) % (2 * math.pi) - math.pi + 0.3 if isinstance(ours, D.VonMises) else drawn
    assert stats.kstest(drawn, theirs.cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: D.ContinuousBernoulli(td.sigmoid(a)),
        lambda a, b: D.Kumaraswamy(a, b),
        lambda a, b: D.InverseGamma(a + 3, b),
        lambda a, b: D.LogNormal(a, b / 3),
        lambda a, b: D.Wishart(a + 2, scale_tril=b * td.eye(2, dtype=td.float64)),
        lambda a, b: D.LowRankMultivariateNormal(a * ONES, b * ONES[:, None], ONES),
    ],
)  # fmt: skip
def test_gradients_of_the_mean_flow_through_samples(make):
    td.manual_seed(1)
    a, b = (td.tensor(v, dtype=td.float64, requires_grad=True) for v in (1.3, 0.8))
    got = td.autograd.grad(make(a, b).rsample((20_000,)).mean(0).sum(), (a, b), allow_unused=True)
    expected = td.autograd.grad(make(a, b).mean.sum(), (a, b), allow_unused=True)
    for g, e in zip(got, expected, strict=True):
        assert abs((0 if g is None else g.item()) - (0 if e is None else e.item())) < 0.15


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


def test_relaxed_samples_have_gradients():
    logits = td.zeros(3, requires_grad=True)
    td.manual_seed(0)
    hard = D.OneHotCategoricalStraightThrough(logits=logits)
    assert sorted(hard.rsample().tolist()) == pytest.approx([0, 0, 1], abs=1e-6)
    (hard.rsample() * td.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert logits.grad.abs().max() > 0
    for soft in (D.RelaxedBernoulli(0.5, logits=logits), D.RelaxedOneHotCategorical(0.5, logits=logits)):
        x = soft.rsample((5,))
        assert soft.support.check(x).all()
        assert td.autograd.grad(soft.log_prob(x.detach()).sum(), logits, retain_graph=True)[0].isfinite().all()


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


def test_values_are_checked_if_asked():
    d = D.Gamma(1.0, 1.0, validate_args=True)
    with pytest.raises(td.ValueRangeError, match="the value must be at least 0"):
        d.log_prob(td.tensor(-1.0))
    with pytest.raises(td.ValueRangeError, match="end in the event's shape"):
        D.Dirichlet(td.ones(3), validate_args=True).log_prob(td.ones(2) / 2)
    D.Distribution.set_default_validate_args(True)
    try:
        with pytest.raises(td.ValueRangeError, match="scale must be"):
            D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(False)


def test_a_dirichlet_of_ones_has_its_gradient():
    """xlogy(0, y) has the derivative log(y) by its first argument."""
    a = td.ones(2, dtype=td.float64, requires_grad=True)
    (g,) = td.autograd.grad(D.Dirichlet(a).log_prob(td.tensor([0.25, 0.75], dtype=td.float64)), a)
    np.testing.assert_allclose(g.numpy(), np.log([0.25, 0.75]) + 1, rtol=1e-9)
