"""Angles of sines, cosines and tangents."""

import numpy as np
import pytest

from tests.codegen.mathlib.checks import (
    BOTH_TYPES,
    BOTH_WAYS,
    Case,
    check_last_places,
)

CASES = [
    Case("asin", np.arcsin, (1.8, 1.8)),
    Case("acos", np.arccos, (1.3, 1.3)),
    Case("atan", np.arctan, (2.0, 2.0)),
    Case("atan2", np.arctan2, (2.0, 2.0), arguments=2),
]


@BOTH_TYPES
@BOTH_WAYS
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_functions_are_good_to_the_last_places(case, evaluate, dtype):
    check_last_places(case, evaluate, dtype)
