"""Elementwise operators in ONNX files, where rounding, overflow and special values show how they are written."""

import numpy as np
import pytest

import tandem as td
import tandem.nn.functional as F
from tests.onnx.writers.roundtrip import check_save

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
INF, NAN = float("inf"), float("nan")
NUMBERS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 0.3, 1e-20, -1e-6, 88.0, -104.0, -300.0, 300.0, 1e5, -1e5, 1e8, 1e30, -3e38, INF, -INF, NAN,
]  # fmt: skip
X = td.tensor(NUMBERS)
A, B = (td.tensor(list(v)) for v in zip(*((p, q) for p in NUMBERS for q in NUMBERS), strict=True))
ONE = [
    td.expm1, td.log1p, td.exp2, td.log2, td.log10, td.cbrt, td.trunc, td.round, td.sign, td.sinh, td.erfc, td.lgamma, td.digamma,
    td.logit, td.rsqrt, td.signbit, td.i0, td.isfinite, F.elu, F.selu, F.celu, F.softplus, F.logsigmoid, F.mish, F.gelu,
]  # fmt: skip
TWO = [
    td.atan2, td.hypot, td.logaddexp, td.remainder, td.fmod, td.floor_divide, td.copysign, td.maximum, td.fmin, td.xlogy, td.ldexp,
]  # fmt: skip


def name_of(fn) -> str:
    return fn.__name__


@pytest.mark.parametrize("fn", ONE, ids=name_of)
def test_special_values(fn):
    check_save(fn, X, whole_batches=False)


@pytest.mark.parametrize("fn", [f for f in TWO if f is not td.ldexp], ids=name_of)
def test_special_values_of_two(fn):
    check_save(fn, A, B, whole_batches=False)


@pytest.mark.parametrize(
    "fn", [td.tan, td.asinh, td.acos, td.erf, td.sinh, td.log1p, td.expm1, F.gelu, F.softplus], ids=name_of
)
def test_float64_keeps_its_digits(fn):
    check_save(fn, td.tensor([0.3, -0.7, 1e-9, 0.99], dtype=td.float64), tolerance=1e-13)


def test_what_numbers_are_whole_already():
    def fn(x):
        return td.floor(x), td.ceil(x), td.round(x), td.trunc(x), td.isnan(x), td.abs(x), x << 2, x >> 1, x // 3, x % -3

    check_save(fn, td.tensor([-7, 0, 5, 2**40]))


def test_divisors_that_are_tensors():
    a, b = td.tensor([-7, 0, 5, 2**40]), td.tensor([3, -2, 7, 10])
    check_save(lambda a, b: (a // b, a % b, td.fmod(a, b), a.int() // b.int()), a, b)


def test_nothing_is_lost_where_a_formula_would_overflow():
    """ELU far below zero is -alpha: 2 e^(x/2) sinh(x/2) was NaN there."""
    proto = td.onnx.save(F.elu, td.ones(3))
    y = td.onnx.load(proto)(td.tensor([-1000.0, -1.0, 2.0]))
    np.testing.assert_allclose(y.numpy(), [-1, -0.6321206, 2], rtol=1e-6)
