"""Mixtures of one family."""

import pytest

import tandem as td
from tandem import distributions as D

stats = pytest.importorskip("scipy.stats")


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
