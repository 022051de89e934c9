"""Rounding."""

import numpy as np
import pytest

import tandem as td
from tests.ops.unary_checks import INF, NAN, check_special_values, check_values_and_gradients

# name -> (reference, interval on which it is smooth)
FUNCTIONS = {
    "floor": (np.floor, 0.1, 0.9),
    "ceil": (np.ceil, 0.1, 0.9),
    "trunc": (np.trunc, 0.1, 0.9),
    "round": (np.round, 0.6, 1.4),
    "frac": (lambda x: x - np.trunc(x), 0.1, 0.9),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name):
    check_values_and_gradients(name, *FUNCTIONS[name])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name):
    check_special_values(name, FUNCTIONS[name][0])


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round"])
def test_integers_stay_integers(name):
    for dtype in ("int8", "int32", "int64", "uint8"):
        x = np.array([0, 1, 5, 100], dtype) if dtype == "uint8" else np.array([0, -1, 5, -128], dtype)
        with np.errstate(all="ignore"):
            expected = FUNCTIONS[name][0](x)
        got = getattr(td, name)(td.tensor(x))
        assert got.dtype.name == dtype
        np.testing.assert_array_equal(got.numpy(), expected)


def test_round_halves_and_decimals():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e20, INF, NAN], np.float32)
    np.testing.assert_array_equal(td.round(td.tensor(x)).numpy(), np.round(x))
    y = np.array([1.2345, -2.675, 123.456])
    for decimals in (1, 2, -1, -2):
        np.testing.assert_allclose(td.round(td.tensor(y), decimals).numpy(), np.round(y, decimals))
    z = np.array([15, 25, -15, 149, 150, 250])
    np.testing.assert_array_equal(td.round(td.tensor(z), -1).numpy(), np.round(z, -1))
    np.testing.assert_array_equal(td.round(td.tensor(z), 2).numpy(), z)


@pytest.mark.parametrize("name", ["floor"])
def test_in_place(name):
    x = td.tensor([0.25, 4.0])
    expected = getattr(td, name)(x)
    out = getattr(x, name + "_")()
    assert out is x and td.array_equal(x, expected)
