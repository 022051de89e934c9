"""Transforms: there and back, their determinants, and distributions of what they make."""

import contextlib
import math
import pickle

import numpy as np
import pytest

import tandem as td
from tandem import distributions as D

stats = pytest.importorskip("scipy.stats")


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
