"""Classes that are sampled."""

import numpy as np
import pytest

import tandem as td
from tests.nn.cases import SAMPLERS


@pytest.mark.parametrize("name", SAMPLERS)
def test_draws_follow_their_probability(name):
    td.manual_seed(0)
    sampler = SAMPLERS[name](20)
    for _ in range(3):
        sampler.observe(td.tensor([1, 1, 5]))
    p = sampler.probability(td.arange(20)).numpy()
    assert abs(p.sum() - 1) < 1e-5
    drawn = np.bincount(sampler.draw(40_000).numpy(), minlength=20) / 40_000
    assert abs(drawn - p).max() < 5 * np.sqrt(p.max() / 40_000)


@pytest.mark.parametrize("name", SAMPLERS)
def test_expected_counts_are_those_of_many_samples(name):
    td.manual_seed(1)
    sampler, every = SAMPLERS[name](12), td.arange(12)[:, None]
    seen, expected, runs = np.zeros(12), np.zeros(12), 400
    for _ in range(runs):
        made = sampler.sample(every, 5)
        classes = made.sampled_candidates.numpy()
        assert len(set(classes.tolist())) == 5
        seen[classes] += 1
        expected += made.true_expected_count.numpy()[:, 0]
    assert abs(seen - expected).max() / runs < 0.12
