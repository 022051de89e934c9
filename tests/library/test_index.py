import numpy as np
import pytest

from tandem._runtime import library_call
from tests.library.layouts import FLOATS, INTEGERS, layouts, random, run


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("size", [1, 10, 1000])
def test_check_index_accepts_what_is_in_range(dtype, size):
    index = np.arange(size).astype(dtype) % 100
    for x in layouts(index.reshape(-1, 1)):
        library_call("check_index", [x], [], [min(size, 100), 0, 0], [])
    library_call("check_index", [np.empty((0, 3), dtype)], [], [0, 0, 0], [])


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
def test_check_index_names_the_first_bad_value(dtype):
    index = np.zeros((30, 40), dtype)
    index[3, 4], index[20, 1] = 9, -3
    for x in layouts(index):
        with pytest.raises(Exception, match="index 9 is out of range for axis 2 with size 5"):
            library_call("check_index", [x], [], [5, 1, 2], [])
    with pytest.raises(Exception, match="index -3 is out of range for axis 1 with size 50"):
        library_call("check_index", [index], [], [50, 0, 1], [])
    library_call("check_index", [index], [], [10, 1, 0], [])


def test_check_index_of_a_huge_unsigned():
    with pytest.raises(Exception, match="index 18446744073709551615 is out of range"):
        library_call("check_index", [np.array([2**64 - 1], "uint64")], [], [5, 1, 0], [])


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + ["bool", "complex64", "complex128"], ids=str)
@pytest.mark.parametrize("shape", [(), (7,), (0, 3), (5, 6), (300, 200)])
def test_nonzero(dtype, shape):
    rng = np.random.default_rng(0)
    x = np.asarray(random(rng, shape, "float32")).astype(dtype)
    x[rng.random(shape) < 0.7] = 0
    if x.dtype.kind == "f" and x.ndim:
        x[..., -1:] = np.nan
    expected = np.argwhere(x)
    for y in layouts(x):
        (count, *_) = library_call("nonzero_count", [y], [], [], [])
        assert count == len(expected)
        np.testing.assert_array_equal(run("nonzero", [y], [((count, len(shape)), "int64")]), expected)
