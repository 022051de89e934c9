"""Elementwise functions of one operand against NumPy and SciPy: values, gradients, special values."""

import numpy as np
import pytest
import scipy.special

import tandem as td
from tests.check import check_op

INF, NAN = float("inf"), float("nan")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.5, 1e-30, -1e-30, 1e-40, 88.0, -104.0, 3e38, -3e38, INF, -INF, NAN]

# name -> (reference, interval on which it is smooth)
FUNCTIONS = {
    "exp": (np.exp, -2, 2),
    "exp2": (np.exp2, -2, 2),
    "expm1": (np.expm1, -2, 2),
    "log": (np.log, 0.2, 3),
    "log2": (np.log2, 0.2, 3),
    "log10": (np.log10, 0.2, 3),
    "log1p": (np.log1p, -0.7, 3),
    "sqrt": (np.sqrt, 0.2, 3),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.3, 3),
    "cbrt": (np.cbrt, 0.3, 3),
    "reciprocal": (np.reciprocal, 0.3, 3),
    "square": (np.square, -2, 2),
    "sigmoid": (scipy.special.expit, -4, 4),
    "logit": (scipy.special.logit, 0.1, 0.9),
    "tanh": (np.tanh, -2, 2),
    "erf": (scipy.special.erf, -2, 2),
    "erfc": (scipy.special.erfc, -2, 2),
    "erfinv": (scipy.special.erfinv, -0.8, 0.8),
    "lgamma": (scipy.special.gammaln, 0.3, 4),
    "digamma": (scipy.special.digamma, 0.3, 4),
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
    "abs": (np.abs, 0.2, 2),
    "negative": (np.negative, -2, 2),
    "positive": (np.positive, -2, 2),
    "relu": (lambda x: np.maximum(x, 0), 0.2, 2),
    "sign": (np.sign, 0.2, 2),
    "floor": (np.floor, 0.1, 0.9),
    "ceil": (np.ceil, 0.1, 0.9),
    "trunc": (np.trunc, 0.1, 0.9),
    "round": (np.round, 0.6, 1.4),
    "frac": (lambda x: x - np.trunc(x), 0.1, 0.9),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name):
    reference, low, high = FUNCTIONS[name]
    check_op(getattr(td, name), reference, shapes=[(3, 4), ()], dtypes=["float32", "float64"], low=low, high=high,
             test_layouts=False, names=[name])  # fmt: skip


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("logit", "lgamma", "digamma")])
def test_special_values(name):
    x = np.array(SPECIAL, np.float32)
    if name in ("sin", "cos", "tan"):  # beyond 2^48 these carry no information
        x = np.where(np.isfinite(x) & (np.abs(x) > 1e10), np.float32(1e10), x)
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name][0](x)
    got = getattr(td, name)(td.tensor(x)).numpy()
    np.testing.assert_allclose(got, expected, rtol=3e-6, atol=1e-44)
    if name not in ("relu", "erfinv", "sign"):  # signs of zeros
        zeros = (expected == 0) & (np.abs(x) < 1)
        np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(expected[zeros]))


def test_layouts_and_16_bit_floats():
    check_op(td.exp, np.exp, shapes=[(3, 4), (0,), (2, 3, 4)], dtypes=["float32", "float16", "bfloat16"], grad=False)


@pytest.mark.parametrize("name", ["sqrt", "exp", "sin", "sigmoid", "log1p", "reciprocal"])
def test_integers_become_floats(name):
    out = getattr(td, name)(td.tensor([1, 2]))
    assert out.dtype is td.float32
    np.testing.assert_allclose(out.numpy(), FUNCTIONS[name][0](np.array([1.0, 2.0])), rtol=1e-6)


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "abs", "sign", "square", "positive", "negative"])
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


def test_logit_eps():
    x = td.tensor([0.0, 1.0])
    np.testing.assert_allclose(td.logit(x, 1e-3).numpy(), scipy.special.logit([1e-3, 1 - 1e-3]), rtol=1e-5)
    np.testing.assert_array_equal(td.logit(x).numpy(), [-INF, INF])


@pytest.mark.parametrize(
    "name", ["exp", "sqrt", "sigmoid", "tanh", "abs", "neg", "floor", "square", "sin", "reciprocal"]
)
def test_in_place(name):
    x = td.tensor([0.25, 4.0])
    expected = getattr(td, name)(x)
    out = getattr(x, name + "_")()
    assert out is x and td.array_equal(x, expected)


def test_in_place_gradient():
    x = td.tensor([0.5, 2.0], requires_grad=True)
    y = x * 1
    y.exp_()
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp([0.5, 2.0]), rtol=1e-6)


def test_zero_and_fill():
    x = td.ones(3)
    assert td.array_equal(x.zero_(), td.zeros(3))
    assert td.array_equal(x.fill_(2), td.full((3,), 2.0))
    assert td.array_equal(td.zeros(2, dtype="int32").fill_(7), td.full((2,), 7, dtype="int32"))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_polygamma(n):
    x = np.concatenate([np.geomspace(1e-3, 1e3, 30), [1.0, 2.0, 10.5]])
    np.testing.assert_allclose(td.polygamma(n, td.tensor(x)).numpy(), scipy.special.polygamma(n, x), rtol=1e-12)
    check_op(lambda t: td.polygamma(n, t), lambda a: scipy.special.polygamma(n, a), shapes=[(4,)], low=1.5, high=4, second=n == 1,
             test_layouts=False, names=["polygamma"])  # fmt: skip
    # d/dx on the negative side agrees with the next order
    y = np.array([-0.3, -1.6, -2.45])
    numeric = (td.polygamma(n - 1, td.tensor(y + 1e-6)) - td.polygamma(n - 1, td.tensor(y - 1e-6))).numpy() / 2e-6
    np.testing.assert_allclose(td.polygamma(n, td.tensor(y)).numpy(), numeric, rtol=1e-5)


def test_type_methods():
    x = td.tensor([1.7, 0.0])
    assert x.float() is x and x.int().tolist() == [1, 0] and x.bool().tolist() == [True, False]
    assert x.double().dtype is td.float64 and x.half().dtype is td.float16 and x.long().dtype is td.int64
    assert x.type_as(td.tensor(1)).dtype is td.int64
