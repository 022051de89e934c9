"""The examples of control flow do what they say."""

import importlib.util
import pathlib

import numpy as np

import tandem as td

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_beam_search_finds_the_best_sentence():
    example = load("beam_search")
    for start in (1, 4):
        words, scores = example.search(td.tensor(start))
        assert words.shape == (example.BEAMS, example.LONGEST)
        np.testing.assert_allclose(float(scores[0]), example.search_everything(start), rtol=1e-5)


def test_newton_is_differentiated():
    a, b = td.tensor([1.0, 2.0], dtype=td.float64), td.tensor([2.0, 9.0], dtype=td.float64)
    x, slope_a, slope_b = load("newton").roots_and_slopes(a, b)
    np.testing.assert_allclose(slope_a.numpy(), (-x / (3 * x * x + a)).numpy(), rtol=1e-9)
    np.testing.assert_allclose(slope_b.numpy(), (1 / (3 * x * x + a)).numpy(), rtol=1e-9)


def test_the_language_model_learns(capsys):
    assert load("lstm_language_model").main(rounds=40) < 1.2
