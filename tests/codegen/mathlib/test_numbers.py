"""Parts of floating-point numbers, bit for bit."""

import numpy as np
import pytest

from tandem.codegen import mathlib
from tests.codegen.mathlib.checks import BOTH_TYPES, BOTH_WAYS, Case, by_kernel, check_exact, samples
from tests.codegen.numpy_builder import NumpyBuilder

CASES = [
    Case("nextafter", np.nextafter, (0, 0), arguments=2),
    Case("sign", np.sign, (0, 0)),
]


@BOTH_TYPES
@BOTH_WAYS
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_functions_are_exact(case, evaluate, dtype):
    check_exact(case, evaluate, dtype)


@BOTH_TYPES
def test_frexp_and_ldexp(dtype):
    x = np.concatenate(samples(dtype, 2000, 5))
    b = NumpyBuilder()
    m, e = (part.array for part in mathlib.frexp(b, b.value(x)))
    expected_m, expected_e = np.frexp(x)
    np.testing.assert_array_equal(expected_m, m)
    np.testing.assert_array_equal(np.where(np.isfinite(x), expected_e, 0), e)
    n = np.random.default_rng(6).integers(-2200, 2200, x.size)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.ldexp(x, n), by_kernel(mathlib.ldexp, x, n.astype(dtype)))
