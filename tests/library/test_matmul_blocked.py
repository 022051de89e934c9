"""Products that are worth packing: odd sizes around tiles and blocks, every order of operands, special values.

Elements are small integers, so that every order of summation gives the same float32 and results can be compared exactly.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem import _runtime
from tests.library.layouts import garbage, run

ORDERS = ["nn", "nt", "tn", "tt", "strided"]


def matrix(rng, rows, columns, dtype, order="n"):
    values = rng.integers(-7, 8, (rows, columns)).astype(dtype)
    if order == "t":
        return np.ascontiguousarray(values.T).T
    if order == "s":
        wide = np.zeros((rows * 2, columns * 3), dtype)
        wide[::2, ::3] = values
        return wide[::2, ::3]
    return values


def check(m, n, k, dtype, order="nn", bias=False, out=None, seed=0):
    rng = np.random.default_rng(seed)
    orders = "ss" if order == "strided" else order
    a, b = matrix(rng, m, k, dtype, orders[0]), matrix(rng, k, n, dtype, orders[1])
    inputs = [a, b] + ([rng.integers(-7, 8, n).astype(dtype)] if bias else [])
    expected = a.astype(np.int64) @ b.astype(np.int64) + (inputs[2].astype(np.int64) if bias else 0)
    got = run("matmul", inputs, [((m, n), dtype) if out is None else out])
    np.testing.assert_array_equal(got.astype(np.int64), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("m,n,k", [(24, 300, 400), (256, 70, 300), (289, 33, 777), (300, 600, 50), (1000, 40, 130)])
def test_blocks_and_edges(m, n, k, order, dtype):
    check(m, n, k, dtype, order, bias=order == "nt")


@pytest.mark.parametrize("m", [5, 8, 10, 11, 16, 19, 20, 21, 25, 50, 51, 98, 242, 288])  # tiles of 6 and 4 rows
@pytest.mark.parametrize("order", ["nn", "nt", "tn"])
def test_few_rows_are_shared_between_tiles(m, order):
    check(m, 512, 300, "float32", order)  # rows of b lie 2 KB apart
    check(m, 75, 800, "float32", order, bias=True)


@pytest.mark.parametrize("order", ["nn", "nt", "tn"])
@pytest.mark.parametrize("m,n,k", [(1003, 905, 400), (1100, 412, 1008), (1002, 512, 512)])
def test_many_rows_and_columns(m, n, k, order):  # b is packed beside the first rows' tiles; a is read where it lies
    before = _runtime.num_threads()
    try:
        for count in (1, 2):
            _runtime.set_num_threads(count)
            check(m, n, k, "float32", order, bias=count == 1)
        check(m, n, k, "float32", order, out=garbage((m, n + 7), np.dtype("float32"))[:, 3 : n + 3])
        check(m, n, k, "float32", order, out=garbage((n, m), np.dtype("float32")).T)
    finally:
        _runtime.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["nn", "nt", "tn"])
def test_more_columns_than_are_packed_at_once(order):
    test_many_rows_and_columns(1400, 1536, 257, order)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(5, 420),
    st.integers(5, 420),
    st.integers(1, 900),
    st.sampled_from(["float32", "int32"]),
    st.sampled_from(ORDERS),
    st.booleans(),
)
def test_any_sizes(m, n, k, dtype, order, bias):
    check(m, n, k, dtype, order, bias)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("m", [100, 500])
def test_results_that_are_not_dense(dtype, m):
    check(m, 120, 260, dtype, out=garbage((120, m), np.dtype(dtype)).T)
    check(m, 120, 260, dtype, out=garbage((m, 240), np.dtype(dtype))[:, ::2])
    check(m, 120, 260, dtype, out=garbage((m, 127), np.dtype(dtype))[:, 3:123])


@pytest.mark.parametrize("m", [200, 400])
@pytest.mark.parametrize("order", ["nn", "nt", "tn"])
def test_nan_and_infinity_stay_where_they_belong(m, order):
    rng = np.random.default_rng(0)
    a, b = matrix(rng, m, 530, "float32", order[0]), matrix(rng, 530, 150, "float32", order[1])
    a[3, 5], a[m - 1, 529], b[7, 149] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        expected = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
        got = run("matmul", [a, b], [((m, 150), "float32")])
    np.testing.assert_array_equal(got, expected)


@pytest.mark.usefixtures("own_products")
@pytest.mark.parametrize(
    "m,n,k", [(256, 600, 784), (700, 256, 700), (20, 1024, 256), (16, 2048, 1024), (300, 1200, 300), (1003, 905, 400)]
)
def test_float32_is_the_same_for_any_number_of_threads(m, n, k):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k)).astype(np.float32)
    b = rng.standard_normal((n, k)).astype(np.float32).T
    before = _runtime.num_threads()
    try:
        results = []
        for count in (1, 2, 3):
            _runtime.set_num_threads(count)
            results.append(run("matmul", [a, b], [((m, n), "float32")]))
    finally:
        _runtime.set_num_threads(before)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
