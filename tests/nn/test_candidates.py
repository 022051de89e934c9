"""Classes that are sampled."""

import numpy as np
import pytest

import tandem as td
from tandem.nn import candidates
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


@pytest.mark.parametrize("name", ["log_uniform", "learned"])
def test_sums_over_samples_of_different_classes_are_unbiased(name):
    """Of all classes, each over its expected count: Note [Different classes]."""
    td.manual_seed(0)
    rng, classes, times = np.random.default_rng(0), 50, 2000
    values = np.exp(1.5 * rng.standard_normal(classes))
    sampler = {"log_uniform": candidates.LogUniformSampler, "learned": candidates.LearnedUnigramSampler}[name](classes)
    if name == "learned":
        sampler.observe(td.tensor([*rng.zipf(1.5, 3000) % classes, *[3, 7, 3, 0] * 3000]))  # mostly three classes
    nothing, sums = td.zeros(0, dtype=td.int64), []
    for _ in range(times):
        sampled, _, expected = (t.numpy() for t in sampler.sample(nothing, 10))
        assert len(set(sampled.tolist())) == 10
        sums.append((values[sampled] / expected).sum() / values.sum())
    assert abs(np.mean(sums) - 1) < 3 * np.std(sums) / times**0.5


def test_samples_of_all_classes_are_expected_once():
    sampled, true, expected = candidates.LogUniformSampler(7).sample(td.tensor([[3]]), 7)
    assert sorted(sampled.tolist()) == list(range(7)) and true.tolist() == [[1.0]] and expected.tolist() == [1.0] * 7
