"""The logarithm of gamma and its derivative."""

import numpy as np
import pytest
import scipy.special

from tests.codegen.mathlib.checks import (
    BOTH_TYPES,
    BOTH_WAYS,
    Case,
    check_last_places,
    on_float64,
    wide,
)


def lgamma(x):
    y = on_float64(scipy.special.gammaln)(x)
    return np.where(np.abs(x) < 1e-300, -np.log(np.abs(x)), np.where(np.isinf(x), np.inf, y))


def digamma(x):
    mirrored = on_float64(scipy.special.digamma)(np.where(x < 0, 1 - x, x))
    fraction = x - np.rint(x)
    pole = np.where(
        fraction == 0, np.nan, wide("3.14159265358979323846") / np.tan(wide("3.14159265358979323846") * fraction)
    )
    return np.where(x < 0, mirrored - pole, np.where(x == 0, -1 / x, mirrored))


CASES = [
    Case("lgamma", lgamma, (1.0, 16.0), absolute=True),
    Case("digamma", digamma, (1.0, 16.0), absolute=True),
]


@BOTH_TYPES
@BOTH_WAYS
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_functions_are_good_to_the_last_places(case, evaluate, dtype):
    check_last_places(case, evaluate, dtype)
