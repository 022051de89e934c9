"""What is sampled from: temperature, the k likeliest, the likeliest that together have a probability."""

import numpy as np

import tandem as td
from tandem.generation import Sampling

SCORES = td.tensor([[2.0, 1.0, 0.0, -1.0], [0.0, 0.0, 5.0, 0.0]])


def test_probabilities_are_those_of_the_formula():
    x = SCORES.numpy()
    expected = np.exp(x / 0.5) / np.exp(x / 0.5).sum(-1, keepdims=True)
    np.testing.assert_allclose(Sampling(0.5).probabilities(SCORES).numpy(), expected, rtol=1e-5)
    two = np.where(x >= np.sort(x)[:, -2:-1], np.exp(x), 0)
    np.testing.assert_allclose(
        Sampling(top_k=2).probabilities(SCORES).numpy(), two / two.sum(-1, keepdims=True), rtol=1e-5
    )


def test_top_p_keeps_the_fewest_tokens_that_reach_it():
    made = Sampling(top_p=0.7).probabilities(SCORES).numpy()
    assert (made > 0).sum(-1).tolist() == [2, 1]  # 0.64 is too little, 0.88 enough
    np.testing.assert_allclose(made.sum(-1), 1, rtol=1e-6)
    assert (Sampling(top_p=0.01).probabilities(SCORES).numpy() > 0).sum(-1).tolist() == [1, 1]


def test_zero_temperature_takes_the_likeliest():
    assert Sampling(0).choose(SCORES).tolist() == [[0], [2]]
    assert Sampling(0).probabilities(SCORES).tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]


def test_the_lowest_temperatures_take_the_likeliest_too():
    for temperature in (1e-8, 1e-37, 1e-300):
        assert [[0], [2]] == Sampling(temperature).choose(SCORES).tolist()
