"""Linear layers against their formula."""

import math

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tests.check import assert_close


def test_linear_is_its_formula():
    layer = nn.Linear(5, 3)
    x = td.randn(2, 4, 5)
    expected = x.numpy() @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    assert_close(layer(x), expected, rtol=1e-5, atol=1e-6)
    assert nn.Linear(5, 3, bias=False).bias is None
    assert "in_features=5, out_features=3" in repr(layer)


def test_weights_begin_within_one_over_the_root_of_the_inputs():
    td.manual_seed(0)
    layer = nn.Linear(400, 300)
    for parameter in (layer.weight, layer.bias):
        values = parameter.detach().numpy()
        assert np.abs(values).max() <= 1 / math.sqrt(400) and np.abs(values).max() > 0.9 / math.sqrt(400)


def test_bilinear_is_its_formula():
    layer = nn.Bilinear(3, 4, 2)
    x, y = td.randn(6, 3), td.randn(6, 4)
    w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    assert_close(layer(x, y), np.einsum("ni,oij,nj->no", x.numpy(), w, y.numpy()) + b, rtol=1e-5, atol=1e-5)


def test_identity_takes_any_arguments_and_gives_the_input():
    x = td.ones(2)
    assert nn.Identity(54, unused=True)(x) is x


def test_another_number_of_features_is_named():
    with pytest.raises(td.ShapeError, match="linear"):
        nn.Linear(5, 3)(td.ones(2, 4))
