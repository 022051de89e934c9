"""Models whose structure follows the data (benchmarks/structured) have the same losses and gradients under td.autobatch."""

import pathlib
import sys

import numpy as np
import pytest

import tandem as td

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "benchmarks"))

from structured.models import MODELS, parameters_of


def gradients(model, examples, scope):
    parameters = parameters_of(model)
    for p in parameters:
        p.grad = None
    td.manual_seed(5)
    with scope as batch:
        loss = sum(model.loss(example) for example in examples)
    loss.backward()
    return [loss.detach().numpy(), *(p.grad.numpy() for p in parameters if p.grad is not None)], batch


@pytest.mark.parametrize("name", MODELS)
def test_losses_and_gradients_are_those_without_batching(name):
    td.manual_seed(0)
    model = MODELS[name](td, 8)
    rng = np.random.default_rng(0)
    for _ in range(2):
        examples = model.examples(rng, 6)
        expected, _ = gradients(model, examples, td.enable_grad())
        found, _ = gradients(model, examples, td.autobatch())
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
