"""Densities, entropies, quantiles and moments against SciPy; samples against their own moments and distribution function."""

import math

import numpy as np
import pytest

import tandem as td
from tandem import distributions as D
from tests.distributions.families import CONTINUOUS, DISCRETE

stats = pytest.importorskip("scipy.stats")


def name_of(value):
    return type(value).__name__ if isinstance(value, D.Distribution) else ""


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


def test_subclasses_expand_as_those_of_pytorch_do():
    class Shifted(td.distributions.Normal):
        def __init__(self, loc, shift):
            super().__init__(loc + shift, td.ones_like(loc))
            self.shift = shift

        def expand(self, batch_shape, _instance=None):
            made = self._get_checked_instance(Shifted, _instance)
            made.shift = self.shift
            return super().expand(batch_shape, _instance=made)

    class Other(Shifted):
        def __init__(self):
            super().__init__(td.zeros(2), 1.0)

    large = Shifted(td.zeros(2), 3.0).expand((4, 2))
    assert type(large) is Shifted
    assert large.shift == 3.0
    assert large.mean.tolist() == [[3.0, 3.0]] * 4
    with pytest.raises(td.UnsupportedError, match="define expand"):
        Other().expand((4, 2))
