"""Logarithms."""

import numpy as np
import pytest

from tandem.codegen import mathlib
from tests.codegen.mathlib.checks import BOTH_TYPES, BOTH_WAYS, Case, by_kernel, check_last_places, wide

CASES = [
    Case("log", np.log, (1.0, 1.0)),
    Case("log2", np.log2, (1.1, 0.6)),
    Case("log10", np.log10, (1.1, 0.6)),
    Case("log1p", np.log1p, (1.6, 1.6)),
    Case("softplus", lambda x: np.logaddexp(x, wide(0)), (2.0, 2.0)),
    Case("logaddexp", np.logaddexp, (2.0, 2.0), arguments=2, absolute=True),
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
    np.testing.assert_array_equal(n, f("log2", 2.0**n))
    np.testing.assert_array_equal(np.arange(11), f("log10", 10.0 ** np.arange(11)))
    np.testing.assert_array_equal([0], f("log", [1.0]))
