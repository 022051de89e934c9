"""Operators without a counterpart in ONNX, written by their scalar expressions."""

import numpy as np
import pytest

import tandem as td
from tests.onnx.writers.roundtrip import check_save

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")


@pytest.mark.parametrize("name", ["lgamma", "digamma", "erfinv", "i0", "sinc", "erfcx", "log_ndtr", "ndtri"])
def test_special_functions(name):
    fn = getattr(td, name, None) or getattr(td.special, name)
    check_save(fn, td.tensor([0.05, 0.3, 0.5, 0.95]), tolerance=3e-5)


def test_shifts_keep_the_sign():
    x = td.tensor([-(2**40) - 3, -1, 0, 7, 2**62])
    check_save(lambda x, n: (x >> n, (x.int() << n), x >> 63), x, td.tensor([1, 63, 5, 2, 61]))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint64"])
def test_quotients_are_floors_at_the_ends_of_a_type(dtype):
    limits = np.iinfo(dtype)
    least = [limits.min + n for n in range(4)]
    x = td.tensor(np.array([*least, *(limits.max - n for n in range(4)), 0, 1, 7], dtype))
    signs = (1, -1) if limits.min else (1,)
    divisors = [sign * n for sign in signs for n in (1, 2, 3, 7, 100) if (sign, n) != (-1, 1)]
    check_save(lambda x: tuple(x // n for n in divisors) + tuple(x // td.full_like(x, n) for n in divisors), x)


def test_what_needs_bits_is_refused():
    with pytest.raises(td.UnsupportedError, match="onnx nextafter: the scalar operation bitcast cannot be written"):
        td.onnx.save(lambda x: td.nextafter(x, x + 1), td.ones(3))
