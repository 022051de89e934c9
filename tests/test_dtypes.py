"""Dtypes: names, sizes, and what two of them become together."""

import numpy as np
import pytest

import tandem as td
from tandem import dtypes

SAME_AS_NUMPY = ["bool", "int8", "int16", "int32", "int64", "uint8", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("name", SAME_AS_NUMPY)
def test_a_dtype_is_found_by_its_name_and_has_numpys_size(name):
    found = dtypes.by_name(name)
    assert found.name == name and found.itemsize == np.dtype(name).itemsize
    assert dtypes.as_dtype(name) is dtypes.as_dtype(np.dtype(name)) is found


@pytest.mark.parametrize("a", SAME_AS_NUMPY)
@pytest.mark.parametrize("b", SAME_AS_NUMPY)
def test_promotion_is_symmetric_and_holds_both(a, b):
    made = dtypes.promote(dtypes.by_name(a), dtypes.by_name(b))
    assert made is dtypes.promote(dtypes.by_name(b), dtypes.by_name(a))
    kinds = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
    theirs = np.promote_types(a, b)
    assert kinds[np.dtype(made.name).kind] == kinds[theirs.kind] if theirs.kind != "f" else made.is_inexact
    if np.dtype(a).kind == np.dtype(b).kind:
        assert made.name == theirs.name


def test_16_bits_of_two_kinds_become_32():
    assert dtypes.promote(td.float16, td.bfloat16) is td.float32
    assert dtypes.promote(td.bfloat16, td.int64) is td.bfloat16


def test_names_that_are_no_dtypes_are_refused():
    assert not dtypes.is_name("float33")
    with pytest.raises((TypeError, ValueError), match="float33"):
        dtypes.as_dtype("float33")
