"""Distributions of whole numbers and classes."""

import math

import numpy as np
import pytest

import tandem as td
from tandem import distributions as D
from tests.distributions.families import DISCRETE

stats = pytest.importorskip("scipy.stats")


def name_of(value):
    return type(value).__name__ if isinstance(value, D.Distribution) else ""


@pytest.mark.parametrize(("ours", "theirs", "points"), DISCRETE, ids=name_of)
def test_discrete(ours, theirs, points):
    np.testing.assert_allclose(ours.log_prob(td.tensor(points)).numpy(), theirs.logpmf(points), rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(ours.mean.numpy(), theirs.mean(), rtol=2e-5)
    np.testing.assert_allclose(ours.variance.numpy(), theirs.var(), rtol=2e-5)
    if type(ours).entropy is not D.Distribution.entropy:
        np.testing.assert_allclose(ours.entropy().numpy(), theirs.entropy(), rtol=2e-5)


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
