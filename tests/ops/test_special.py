"""Sigmoid, error functions and their inverses."""

import numpy as np
import pytest
import scipy.special

import tandem as td
from tests.ops.unary_checks import INF, check_special_values, check_values_and_gradients

# name -> (reference, interval on which it is smooth)
FUNCTIONS = {
    "sigmoid": (scipy.special.expit, -4, 4),
    "logit": (scipy.special.logit, 0.1, 0.9),
    "erf": (scipy.special.erf, -2, 2),
    "erfc": (scipy.special.erfc, -2, 2),
    "erfinv": (scipy.special.erfinv, -0.8, 0.8),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name):
    check_values_and_gradients(name, *FUNCTIONS[name])


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "logit"])
def test_special_values(name):
    check_special_values(name, FUNCTIONS[name][0])


@pytest.mark.parametrize("name", ["sigmoid"])
def test_integers_become_floats(name):
    out = getattr(td, name)(td.tensor([1, 2]))
    assert out.dtype is td.float32
    np.testing.assert_allclose(out.numpy(), FUNCTIONS[name][0](np.array([1.0, 2.0])), rtol=1e-6)


def test_logit_eps():
    x = td.tensor([0.0, 1.0])
    np.testing.assert_allclose(td.logit(x, 1e-3).numpy(), scipy.special.logit([1e-3, 1 - 1e-3]), rtol=1e-5)
    np.testing.assert_array_equal(td.logit(x).numpy(), [-INF, INF])


@pytest.mark.parametrize("name", ["sigmoid"])
def test_in_place(name):
    x = td.tensor([0.25, 4.0])
    expected = getattr(td, name)(x)
    out = getattr(x, name + "_")()
    assert out is x and td.array_equal(x, expected)
