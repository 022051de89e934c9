"""Sine, cosine, tangent."""

import numpy as np
import pytest

from tandem.codegen import mathlib
from tests.codegen.mathlib.checks import BOTH_TYPES, BOTH_WAYS, Case, by_kernel, check_last_places

CASES = [
    Case("sin", np.sin, (1.7, 1.7), largest=2.0**48),
    Case("cos", np.cos, (1.8, 1.8), largest=2.0**48),
    Case("tan", np.tan, (3.0, 3.0), largest=2.0**48),
]


@BOTH_TYPES
@BOTH_WAYS
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_functions_are_good_to_the_last_places(case, evaluate, dtype):
    check_last_places(case, evaluate, dtype)


@BOTH_TYPES
def test_exact_arguments_give_exact_results(dtype):
    f = lambda name, *arrays: by_kernel(getattr(mathlib, name), *[np.asarray(a, dtype) for a in arrays])
    np.testing.assert_array_equal([0, 1], [*f("sin", [0.0]), *f("cos", [0.0])])


@BOTH_TYPES
def test_results_stay_in_range_for_huge_arguments(dtype):
    x = np.array([2.0**48, 2.0**49, 1e30, -1e30, np.finfo(dtype).max], dtype)
    for name in ("sin", "cos"):
        assert np.all(np.abs(by_kernel(getattr(mathlib, name), x)) <= 1)
    assert np.all(np.isfinite(by_kernel(mathlib.tan, x)))
