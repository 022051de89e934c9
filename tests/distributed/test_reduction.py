"""Reductions by name."""

import tandem as td
from tandem import dtypes


def test_there_is_one_code_per_reduction_and_dtype():
    for dtype in dtypes.ALL:
        assert td._runtime.reduction_is_defined(dtype.code, 0)
