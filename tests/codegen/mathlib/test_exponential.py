"""Exponentials."""

import numpy as np
import pytest

from tandem.codegen import mathlib
from tests.codegen.mathlib.checks import BOTH_TYPES, BOTH_WAYS, Case, by_kernel, check_last_places


def sigmoid(x):
    return np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-abs(x)))


CASES = [
    Case("exp", np.exp, (1.0, 1.0)),
    Case("exp2", np.exp2, (1.0, 1.0)),
    Case("expm1", np.expm1, (1.5, 2.0)),
    Case("sigmoid", sigmoid, (2.4, 2.4)),
]


@BOTH_TYPES
@BOTH_WAYS
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_functions_are_good_to_the_last_places(case, evaluate, dtype):
    check_last_places(case, evaluate, dtype)


@BOTH_TYPES
def test_exact_arguments_give_exact_results(dtype):
    f = lambda name, *arrays: by_kernel(getattr(mathlib, name), *[np.asarray(a, dtype) for a in arrays])
    n = np.arange(-20, 21)
    np.testing.assert_array_equal(2.0**n, f("exp2", n))
    np.testing.assert_array_equal([1, 1, 0.5], [*f("exp", [0.0, -0.0]), *f("sigmoid", [0.0])])
