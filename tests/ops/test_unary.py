"""Elementwise functions of one operand against NumPy: values, gradients, special values."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_op
from tests.ops.unary_checks import check_special_values, check_values_and_gradients

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
    "tanh": (np.tanh, -2, 2),
    "abs": (np.abs, 0.2, 2),
    "negative": (np.negative, -2, 2),
    "positive": (np.positive, -2, 2),
    "relu": (lambda x: np.maximum(x, 0), 0.2, 2),
    "sign": (np.sign, 0.2, 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name):
    check_values_and_gradients(name, *FUNCTIONS[name])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name):
    check_special_values(name, FUNCTIONS[name][0])


def test_layouts_and_16_bit_floats():
    check_op(td.exp, np.exp, shapes=[(3, 4), (0,), (2, 3, 4)], dtypes=["float32", "float16", "bfloat16"], grad=False)


@pytest.mark.parametrize("name", ["sqrt", "exp", "log1p", "reciprocal"])
def test_integers_become_floats(name):
    out = getattr(td, name)(td.tensor([1, 2]))
    assert out.dtype is td.float32
    np.testing.assert_allclose(out.numpy(), FUNCTIONS[name][0](np.array([1.0, 2.0])), rtol=1e-6)


@pytest.mark.parametrize("name", ["abs", "sign", "square", "positive", "negative"])
def test_integers_stay_integers(name):
    for dtype in ("int8", "int32", "int64", "uint8"):
        x = np.array([0, 1, 5, 100], dtype) if dtype == "uint8" else np.array([0, -1, 5, -128], dtype)
        with np.errstate(all="ignore"):
            expected = FUNCTIONS[name][0](x)
        got = getattr(td, name)(td.tensor(x))
        assert got.dtype.name == dtype
        np.testing.assert_array_equal(got.numpy(), expected)


@pytest.mark.parametrize("name", ["exp", "sqrt", "tanh", "abs", "neg", "square", "reciprocal"])
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


def test_type_methods():
    x = td.tensor([1.7, 0.0])
    assert x.float() is x and x.int().tolist() == [1, 0] and x.bool().tolist() == [True, False]
    assert x.double().dtype is td.float64 and x.half().dtype is td.float16 and x.long().dtype is td.int64
    assert x.type_as(td.tensor(1)).dtype is td.int64
