"""Relaxed discrete distributions."""

import pytest

import tandem as td
from tandem import distributions as D

stats = pytest.importorskip("scipy.stats")


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
