"""Distributions and transforms against PyTorch's: densities, moments, quantiles, divergences, and their gradients."""

import math

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import tandem as td

pytestmark = pytest.mark.oracle
SPD = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 0.7]])
LOWER = np.linalg.cholesky(SPD)
CORRELATION = np.linalg.cholesky(np.array([[1.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 1.0]]))
A, B, C = np.array([0.7, 1.3, 2.6]), np.array([1.9, 0.8, 1.2]), np.array([-0.3, 0.2, 0.9])
P = np.array([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
UNIT, POSITIVE, REAL = np.array([0.2, 0.55, 0.9]), np.array([0.3, 1.1, 3.0]), np.array([-1.2, 0.4, 2.0])
SIMPLEX = np.array([[0.3, 0.3, 0.4], [0.05, 0.15, 0.8]])

# name, parameters, points
CASES = [
    ("Normal", {"loc": C, "scale": A}, REAL),
    ("LogNormal", {"loc": C, "scale": A}, POSITIVE),
    ("Laplace", {"loc": C, "scale": A}, REAL),
    ("Cauchy", {"loc": C, "scale": A}, REAL),
    ("Gumbel", {"loc": C, "scale": A}, REAL),
    ("Uniform", {"low": np.array([0.1, 0.2, 0.3]), "high": np.array([0.7, 0.9, 0.95])}, UNIT),
    ("Exponential", {"rate": A}, POSITIVE),
    ("Gamma", {"concentration": A, "rate": B}, POSITIVE),
    ("Chi2", {"df": A}, POSITIVE),
    ("Beta", {"concentration1": A, "concentration0": B}, UNIT),
    ("Beta", {"concentration1": A / 4, "concentration0": B / 4}, UNIT),
    ("StudentT", {"df": A + 1.5, "loc": C, "scale": B}, REAL),
    ("HalfNormal", {"scale": A}, POSITIVE),
    ("HalfCauchy", {"scale": A}, POSITIVE),
    ("Weibull", {"scale": A, "concentration": B}, POSITIVE),
    ("Pareto", {"scale": A, "alpha": B + 1.5}, POSITIVE + 2.5),
    ("ContinuousBernoulli", {"probs": np.array([0.2, 0.5002, 0.7])}, UNIT),
    ("ContinuousBernoulli", {"logits": C}, UNIT),
    ("FisherSnedecor", {"df1": A + 2, "df2": B + 3}, POSITIVE),
    ("InverseGamma", {"concentration": A + 1, "rate": B}, POSITIVE),
    ("Kumaraswamy", {"concentration1": A, "concentration0": B}, UNIT),
    ("VonMises", {"loc": C, "concentration": A}, REAL),
    ("RelaxedBernoulli", {"temperature": np.array(0.7), "probs": UNIT}, np.array([0.3, 0.5, 0.6])),
    ("RelaxedBernoulli", {"temperature": np.array(0.7), "logits": C}, UNIT),
    ("RelaxedOneHotCategorical", {"temperature": np.array(0.7), "probs": P}, SIMPLEX),
    ("LogisticNormal", {"loc": P[:, :2], "scale": P[:, :2] + 0.5}, SIMPLEX),
    ("Dirichlet", {"concentration": P * 5}, SIMPLEX),
    ("Dirichlet", {"concentration": P}, SIMPLEX),
    ("MultivariateNormal", {"loc": P, "covariance_matrix": SPD}, SIMPLEX),
    ("MultivariateNormal", {"loc": P, "precision_matrix": SPD}, SIMPLEX),
    ("LowRankMultivariateNormal", {"loc": P, "cov_factor": SPD[:, :2], "cov_diag": A}, SIMPLEX),
    ("Wishart", {"df": np.array([4.0, 5.5]), "covariance_matrix": SPD}, np.stack([SPD, SPD * 3])),
    ("Wishart", {"df": np.array(4.5), "precision_matrix": SPD}, SPD * 3),
    ("LKJCholesky", {"dim": 3, "concentration": np.array([0.6, 2.0])}, CORRELATION),
    ("Bernoulli", {"probs": np.array([0.2, 0.5, 0.9])}, np.array([0.0, 1.0, 1.0])),
    ("Bernoulli", {"logits": C}, np.array([0.0, 1.0, 1.0])),
    ("Geometric", {"probs": UNIT}, np.array([0.0, 1.0, 4.0])),
    ("Binomial", {"total_count": 5, "probs": UNIT}, np.array([0.0, 1.0, 4.0])),
    ("NegativeBinomial", {"total_count": np.array(4.0), "probs": UNIT}, np.array([0.0, 1.0, 4.0])),
    ("Poisson", {"rate": A}, np.array([0.0, 1.0, 4.0])),
    ("Categorical", {"probs": P}, np.array([2, 0])),
    ("Categorical", {"logits": P}, np.array([2, 0])),
    ("OneHotCategorical", {"probs": P}, np.eye(3)[[2, 0]]),
    ("OneHotCategoricalStraightThrough", {"logits": P}, np.eye(3)[[2, 0]]),
    ("Multinomial", {"total_count": 4, "probs": P}, np.array([[1.0, 1.0, 2.0], [0.0, 0.0, 4.0]])),
]


def of(package, value, grad=False):
    if not isinstance(value, np.ndarray):
        return value
    return package.tensor(value, requires_grad=grad and value.dtype == np.float64)


def make(package, name, parameters, grad=False):
    leaves = {k: of(package, v, grad) for k, v in parameters.items()}
    return getattr(package.distributions, name)(**leaves, validate_args=not grad), leaves


def close(ours, theirs, rtol=1e-8, message=""):
    a, b = np.asarray(ours.detach().numpy()), np.asarray(theirs.detach().numpy())
    assert a.shape == b.shape, f"{message}: {a.shape} and {b.shape}"
    np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-9, err_msg=message)


def attempt(f):
    try:
        return f()
    except (NotImplementedError, td.UnsupportedError):
        return None


def gradients(package, value, leaves):
    wanted = [t for t in leaves.values() if hasattr(t, "requires_grad") and t.requires_grad]
    if not wanted or not value.requires_grad:
        return []
    try:
        return package.autograd.grad(value.sum(), wanted, allow_unused=True)
    except NotImplementedError:  # PyTorch has no derivative of gammainc by its first argument
        return []


def both(ask, name, parameters, message, rtol=1e-8):
    """Asks ours and theirs and compares values and gradients by all parameters."""
    found = []
    for package in (td, torch):
        d, leaves = make(package, name, parameters, grad=True)
        value = attempt(lambda: ask(package, d))  # noqa: B023
        found.append((value, leaves))
    (ours, a), (theirs, b) = found
    if theirs is None:
        return
    assert ours is not None, f"{message} is not here"
    close(ours, theirs, rtol, message)
    for g, h in zip(gradients(td, ours, a), gradients(torch, theirs, b), strict=False):
        if h is not None and np.isfinite(h.numpy()).all():
            close(td.zeros(1) * 0 + h.numpy() * 0 if g is None else g, h, max(rtol, 1e-7), f"gradient of {message}")


# PyTorch approximates Bessel functions to 1e-7 and the entropy of Multinomial to 1e-8. Its mode is NaN where that of Kumaraswamy is
# and where that of Weibull is 0, and the first class for a Dirichlet with peaks in all corners.
LOOSE = {"VonMises": 3e-6, "Multinomial": 1e-7}
OTHER_MODE = ("Kumaraswamy", "Weibull", "Beta", "Dirichlet")


@pytest.mark.parametrize(("name", "parameters", "points"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_family(name, parameters, points):
    rtol = LOOSE.get(name, 1e-8)
    ours, theirs = make(td, name, parameters)[0], make(torch, name, parameters)[0]
    assert tuple(theirs.batch_shape) == ours.batch_shape
    assert tuple(theirs.event_shape) == ours.event_shape
    assert theirs.has_rsample == ours.has_rsample
    assert theirs.support.event_dim == ours.support.event_dim
    assert theirs.support.is_discrete == ours.support.is_discrete
    assert ours.support.check(of(td, points)).all()
    both(lambda p, d: d.log_prob(of(p, points)), name, parameters, "log_prob", rtol)
    if points.dtype == np.float64:
        x, y = of(td, points, True), of(torch, points, True)
        if name != "Uniform" and not theirs.support.is_discrete:
            close(
                *(p.autograd.grad(d.log_prob(v).sum(), v)[0] for p, d, v in ((td, ours, x), (torch, theirs, y))), 1e-5
            )
    for what in ("mean", "mode", "variance", "stddev"):
        if what != "mode" or name not in OTHER_MODE:
            both(lambda p, d: getattr(d, what), name, parameters, what, rtol)  # noqa: B023
    both(lambda p, d: d.entropy(), name, parameters, "entropy", rtol)
    both(lambda p, d: d.cdf(of(p, points)), name, parameters, "cdf", rtol)
    both(lambda p, d: d.icdf(of(p, UNIT)), name, parameters, "icdf", rtol)
    batch = (4, *ours.batch_shape)
    assert type(ours.expand(batch)) is type(ours)
    both(lambda p, d: d.expand(batch).log_prob(of(p, points)), name, parameters, "expand", rtol)
    assert ours.expand(batch).sample((2,)).shape == (2, *batch, *ours.event_shape)
    assert ours.sample().dtype is (td.int64 if name == "Categorical" else td.float64)
    assert ours.has_enumerate_support == theirs.has_enumerate_support
    if theirs.has_enumerate_support:
        close(ours.enumerate_support(), theirs.enumerate_support())
        close(ours.enumerate_support(False), theirs.enumerate_support(False))
    with pytest.raises((td.ValueRangeError, TypeError)):
        ours.log_prob(of(td, points) * math.nan)


PAIRED = {c[0]: c for c in reversed(CASES)}


@pytest.mark.parametrize("name", sorted(PAIRED))
def test_divergences(name):
    for other in sorted(PAIRED):
        _, first, _ = PAIRED[name]
        _, second, _ = PAIRED[other]
        if name == other:  # other parameters of the same kind
            numbers = ("probs", "low", "high", "cov_diag", "covariance_matrix")
            second = {k: v * 1.1 if isinstance(v, np.ndarray) and k not in numbers else v for k, v in second.items()}
        found = []
        for package in (td, torch):
            (p, a), (q, b) = make(package, name, first, True), make(package, other, second, True)
            leaves = {**a, **{k + "'": v for k, v in b.items()}}
            found.append((attempt(lambda: package.distributions.kl_divergence(p, q)), leaves))  # noqa: B023
        (ours, a), (theirs, b) = found
        if theirs is None or name == other == "Wishart":  # PyTorch's of these is negative: it sums over the batch
            continue
        assert ours is not None, f"no rule for {name} and {other}"
        rtol = 1e-5 if "ContinuousBernoulli" in (name, other) else 1e-8
        close(ours, theirs, rtol, f"{name} {other}")
        for g, h in zip(gradients(td, ours, a), gradients(torch, theirs, b), strict=False):
            if g is not None and h is not None and np.isfinite(h.numpy()).all():
                close(g, h, max(rtol, 1e-7), f"gradient of {name} {other}")


def D(package):
    return package.distributions


TRANSFORMS = [
    ("exp", lambda d, t: d.ExpTransform(), REAL),
    ("sigmoid", lambda d, t: d.SigmoidTransform(), REAL),
    ("softplus", lambda d, t: d.SoftplusTransform(), REAL),
    ("tanh", lambda d, t: d.TanhTransform(), REAL),
    ("power", lambda d, t: d.PowerTransform(t(np.array([0.5, -1.0, 2.0]))), POSITIVE),
    ("affine", lambda d, t: d.AffineTransform(t(C), t(-A)), REAL),
    ("affine of events", lambda d, t: d.AffineTransform(0.3, -2.0, event_dim=1), REAL),
    ("softmax", lambda d, t: d.SoftmaxTransform(), REAL),
    ("stick", lambda d, t: d.StickBreakingTransform(), REAL),
    ("correlations", lambda d, t: d.CorrCholeskyTransform(), REAL),
    ("lower", lambda d, t: d.LowerCholeskyTransform(), SPD),
    ("definite", lambda d, t: d.PositiveDefiniteTransform(), SPD),
    ("reshape", lambda d, t: d.ReshapeTransform((3, 3), (9,)), SPD),
    ("independent", lambda d, t: d.IndependentTransform(d.ExpTransform(), 1), SPD),
    ("cat", lambda d, t: d.CatTransform([d.ExpTransform(), d.TanhTransform()], 0, [1, 2]), REAL),
    ("stack", lambda d, t: d.StackTransform([d.ExpTransform(), d.TanhTransform(), d.identity_transform], 0), REAL),
    ("distribution", lambda d, t: d.CumulativeDistributionTransform(d.Normal(t(C), t(A))), REAL),
    ("composed", lambda d, t: d.ComposeTransform([d.AffineTransform(0.5, 2.0), d.StickBreakingTransform()]), REAL),
    ("composed 2", lambda d, t: d.ComposeTransform([d.SigmoidTransform(), d.AffineTransform(1.0, -1.0)]), REAL),
    ("inverse", lambda d, t: d.ExpTransform().inv, POSITIVE),
    ("abs", lambda d, t: d.AbsTransform(), REAL),
]


@pytest.mark.parametrize(("name", "build", "points"), TRANSFORMS, ids=[t[0] for t in TRANSFORMS])
def test_transform(name, build, points):
    results = []
    for package in (td, torch):
        t = build(package.distributions, package.tensor)
        x = package.tensor(points, requires_grad=True)
        y = t(x)
        parts = [y, package.autograd.grad((y**2).sum(), x, retain_graph=True)[0]]
        try:
            logdet = t.log_abs_det_jacobian(x, y)
            parts += [logdet]
            if logdet.requires_grad:
                parts += [package.autograd.grad((logdet**2).sum(), x)[0]]
        except (NotImplementedError, td.UnsupportedError):
            parts += [None]
        parts += [t.inv(y.detach()), t.bijective, t.domain.event_dim, t.codomain.event_dim]
        parts += [tuple(t.forward_shape(tuple(points.shape)))]
        results.append(parts)
    for ours, theirs in zip(*results, strict=True):
        if hasattr(theirs, "detach"):
            close(ours, theirs, 1e-6)
        else:
            assert ours == theirs


REGIONS = [
    ("positive", lambda c, t: c.positive),
    ("greater_than", lambda c, t: c.greater_than(1.5)),
    ("less_than", lambda c, t: c.less_than(1.5)),
    ("unit_interval", lambda c, t: c.unit_interval),
    ("interval", lambda c, t: c.interval(-2.0, 3.0)),
    ("real", lambda c, t: c.real),
    ("simplex", lambda c, t: c.simplex),
    ("corr_cholesky", lambda c, t: c.corr_cholesky),
    ("independent", lambda c, t: c.independent(c.positive, 1)),
    ("cat", lambda c, t: c.cat([c.positive, c.unit_interval], 0, [1, 2])),
    ("stack", lambda c, t: c.stack([c.positive, c.unit_interval, c.real], 0)),
    ("lower_cholesky", lambda c, t: c.lower_cholesky),
    ("positive_definite", lambda c, t: c.positive_definite),
]


@pytest.mark.parametrize(("name", "build"), REGIONS, ids=[r[0] for r in REGIONS])
def test_ways_into_constraints(name, build):
    points = SPD if name in ("lower_cholesky", "positive_definite") else REAL
    for way in ("transform_to", "biject_to"):
        found = []
        for package in (td, torch):
            region = build(package.distributions.constraints, package.tensor)
            t = attempt(lambda: getattr(package.distributions, way)(region))  # noqa: B023
            found.append(None if t is None else t(package.tensor(points)))
            if t is not None:
                assert region.check(found[-1]).all()
        assert (found[0] is None) == (found[1] is None)
        if found[1] is not None:
            close(*found)


def test_transformed_distributions():
    for build, points in (
        (lambda d, t: [d.AffineTransform(t(C), t(A)), d.SigmoidTransform()], UNIT),
        (lambda d, t: [d.ExpTransform(), d.AffineTransform(0.0, -1.0)], -POSITIVE),
        (lambda d, t: [d.StickBreakingTransform()], np.array([0.1, 0.2, 0.3, 0.4])),
    ):
        found = []
        for package in (td, torch):
            d, t = package.distributions, package.tensor
            loc = t(C, requires_grad=True)
            made = d.TransformedDistribution(d.Normal(loc, t(B)), build(d, t))
            value = made.log_prob(t(points))
            found.append([value, package.autograd.grad(value.sum(), loc)[0]])
            if not made.event_shape:
                found[-1] += [made.cdf(t(points)), made.icdf(t(UNIT))]
            found[-1] += [made.expand((2, *made.batch_shape)).log_prob(t(points))]
        for ours, theirs in zip(*found, strict=True):
            close(ours, theirs)


def test_mixtures_of_vectors():
    found = []
    for package in (td, torch):
        d, t = package.distributions, package.tensor
        parts = d.Independent(d.Normal(t(P), t(P + 0.5)), 1)
        made = d.MixtureSameFamily(d.Categorical(t(np.array([0.3, 0.7]))), parts, validate_args=True)
        x = t(SIMPLEX)
        found.append(
            [made.log_prob(x), made.mean, made.variance, made.expand((4,)).log_prob(x[:1]), made.support.check(x)]
        )
    for ours, theirs in zip(*found, strict=True):
        close(ours, theirs)
