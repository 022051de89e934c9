"""Remainders and quotients, bit for bit."""

import numpy as np
import pytest

from tests.codegen.mathlib.checks import (
    BOTH_TYPES,
    BOTH_WAYS,
    Case,
    check_exact,
)


def floor_divide(x, y):
    """As the Array API standard has it: NumPy's, but the quotient where an operand is infinite."""
    return np.where(np.isinf(x) | np.isinf(y), x / y, np.floor_divide(x, y))


CASES = [
    Case("fmod", np.fmod, (0, 0), arguments=2),
    Case("mod_float", np.remainder, (0, 0), arguments=2),
    Case("floordiv_float", floor_divide, (0, 0), arguments=2),
]


@BOTH_TYPES
@BOTH_WAYS
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_functions_are_exact(case, evaluate, dtype):
    check_exact(case, evaluate, dtype)
