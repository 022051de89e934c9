"""Error functions."""

import math

import numpy as np
import pytest
import scipy.special

from tandem.codegen import mathlib
from tests.codegen.mathlib.checks import (
    BOTH_TYPES,
    BOTH_WAYS,
    Case,
    by_kernel,
    check_last_places,
    on_float64,
)


# SciPy's own are off in places: the sign of zero, denormal numbers, next to the poles of digamma.
def erfinv(x):
    return np.copysign(on_float64(scipy.special.erfinv)(x), x)


CASES = [
    Case("erf", on_float64(math.erf), (1.6, 2.1)),
    Case("erfc", on_float64(math.erfc), (1.2, 3.6)),
    Case("erfinv", erfinv, (3.0, 6.0)),
]


@BOTH_TYPES
@BOTH_WAYS
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_functions_are_good_to_the_last_places(case, evaluate, dtype):
    check_last_places(case, evaluate, dtype)


@BOTH_TYPES
def test_exact_arguments_give_exact_results(dtype):
    f = lambda name, *arrays: by_kernel(getattr(mathlib, name), *[np.asarray(a, dtype) for a in arrays])
    np.testing.assert_array_equal([1, 0], [*f("erfc", [0.0]), *f("erf", [0.0])])
