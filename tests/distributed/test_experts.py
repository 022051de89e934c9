"""Experts on several ranks give what they give on one, with one all-to-all there and one back."""

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist
from tests.distributed.sharding.ranks import S, on_mesh, sharded

X = np.random.default_rng(0).standard_normal((12, 6)).astype(np.float32)


def make(slots=None):
    td.manual_seed(0)
    return dist.MixtureOfExperts(6, 8, experts=4, top_k=2, groups=4, slots=slots)


def test_a_token_gets_the_weighted_results_of_its_best_experts():
    layer = make()
    made = layer(td.tensor(X)).detach().numpy()
    scores = td.softmax(layer.router(td.tensor(X)), -1).detach().numpy()
    w1, w2 = layer.w1.detach().numpy(), layer.w2.detach().numpy()
    for x, s, y in zip(X, scores, made, strict=True):
        best = np.argsort(-s)[:2]
        hidden = [td.nn.functional.gelu(td.tensor(x @ w1[e])).numpy() @ w2[e] for e in best]
        np.testing.assert_allclose(
            y, sum(s[e] * h for e, h in zip(best, hidden, strict=True)) / s[best].sum(), rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("slots", [None, 2])
def test_experts_on_several_ranks_give_what_one_rank_gives(slots):
    layer, x = make(slots), td.tensor(X, requires_grad=True)
    y = layer(x)
    (y**2).sum().backward()

    def work(mesh):
        layer = dist.ExpertParallel().apply(make(slots), mesh)
        x = sharded(X, mesh, [S(0)], requires_grad=True)
        with dist.sharding_report() as report:
            y = layer(x)
        (y**2).sum().backward()
        return (
            y.detach().numpy(),
            x.grad.numpy(),
            layer.w1.grad.numpy(),
            layer.router.weight.grad.numpy(),
            report.collectives,
        )

    expected = y.detach().numpy(), x.grad.numpy(), layer.w1.grad.numpy(), layer.router.weight.grad.numpy()
    for *made, collectives in on_mesh((2,), work):
        assert {"all_to_all": 2} == collectives
        for a, b in zip(made, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(td.ValueRangeError, match="top_k=5 of 4 experts"):
        dist.MixtureOfExperts(6, 8, experts=4, top_k=5)
    with pytest.raises(td.ShapeError, match="12 tokens cannot be divided into 5 groups"):
        dist.MixtureOfExperts(6, 8, experts=4, groups=5)(td.tensor(X))
