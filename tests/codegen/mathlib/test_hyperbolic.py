"""Hyperbolic functions and their inverses."""

import numpy as np
import pytest

from tandem.codegen import mathlib
from tests.codegen.mathlib.checks import BOTH_TYPES, BOTH_WAYS, Case, by_kernel, check_last_places

CASES = [
    Case("sinh", np.sinh, (1.8, 1.8)),
    Case("cosh", np.cosh, (1.5, 1.5)),
    Case("tanh", np.tanh, (2.5, 2.5)),
    Case("asinh", np.arcsinh, (2.0, 2.0)),
    Case("acosh", np.arccosh, (2.0, 2.0)),
    Case("atanh", np.arctanh, (2.2, 2.2)),
]


@BOTH_TYPES
@BOTH_WAYS
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_functions_are_good_to_the_last_places(case, evaluate, dtype):
    check_last_places(case, evaluate, dtype)


@BOTH_TYPES
def test_exact_arguments_give_exact_results(dtype):
    f = lambda name, *arrays: by_kernel(getattr(mathlib, name), *[np.asarray(a, dtype) for a in arrays])
    np.testing.assert_array_equal([1, 0], [*f("cosh", [0.0]), *f("tanh", [0.0])])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tanh_of_opposite_numbers_is_opposite(dtype):
    x = np.concatenate(
        [np.random.default_rng(3).uniform(0, 11, 100_000), [0.0, 1e-40, 1e-8, 30.0, 1e30, np.inf]]
    ).astype(dtype)
    there, back = by_kernel(mathlib.tanh, x), by_kernel(mathlib.tanh, -x)
    np.testing.assert_array_equal(np.signbit(back), np.ones(len(x), bool))
    np.testing.assert_array_equal(there, -back)
