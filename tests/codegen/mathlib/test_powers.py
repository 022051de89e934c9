"""Powers and roots."""

import numpy as np
import pytest

from tandem.codegen import mathlib
from tests.codegen.mathlib.checks import BOTH_TYPES, BOTH_WAYS, Case, by_kernel, check_last_places

CASES = [
    Case("pow", np.power, (0.6, 1.1), arguments=2),
    Case("cbrt", np.cbrt, (0.6, 0.6)),
    Case("rsqrt", lambda x: 1 / np.sqrt(x), (1.5, 1.5)),
    Case("hypot", np.hypot, (0.6, 0.6), arguments=2),
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
    np.testing.assert_array_equal(n, f("cbrt", n**3.0))
    for power in range(5):
        np.testing.assert_array_equal(n.astype(float) ** power, f("pow", n, np.full(n.shape, power)))
    np.testing.assert_array_equal([5, 13], f("hypot", [3, 5], [4, 12]))
