"""Trigonometric and hyperbolic functions."""

import numpy as np
import pytest

import tandem as td
from tests.ops.unary_checks import check_special_values, check_values_and_gradients

# name -> (reference, interval on which it is smooth)
FUNCTIONS = {
    "sin": (np.sin, -4, 4),
    "cos": (np.cos, -4, 4),
    "tan": (np.tan, -1.2, 1.2),
    "asin": (np.arcsin, -0.8, 0.8),
    "acos": (np.arccos, -0.8, 0.8),
    "atan": (np.arctan, -3, 3),
    "sinh": (np.sinh, -2, 2),
    "cosh": (np.cosh, -2, 2),
    "asinh": (np.arcsinh, -3, 3),
    "acosh": (np.arccosh, 1.3, 4),
    "atanh": (np.arctanh, -0.8, 0.8),
    "deg2rad": (np.deg2rad, -3, 3),
    "rad2deg": (np.rad2deg, -3, 3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name):
    check_values_and_gradients(name, *FUNCTIONS[name])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name):
    check_special_values(name, FUNCTIONS[name][0])


@pytest.mark.parametrize("name", ["sin"])
def test_integers_become_floats(name):
    out = getattr(td, name)(td.tensor([1, 2]))
    assert out.dtype is td.float32
    np.testing.assert_allclose(out.numpy(), FUNCTIONS[name][0](np.array([1.0, 2.0])), rtol=1e-6)


@pytest.mark.parametrize("name", ["sin"])
def test_in_place(name):
    x = td.tensor([0.25, 4.0])
    expected = getattr(td, name)(x)
    out = getattr(x, name + "_")()
    assert out is x and td.array_equal(x, expected)
