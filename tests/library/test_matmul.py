import itertools

import numpy as np
import pytest

import tandem as td
from tests.library.layouts import FLOATS, INTEGERS, assert_near, garbage, layouts, random, run

SIZES = [(1, 1, 1), (8, 8, 8), (3, 5, 7), (1, 17, 33), (33, 1, 17), (2, 3, 1), (40, 40, 40), (70, 65, 300)]
SIZES += [(1, 300, 257), (257, 1, 300)]


def reference(a, b):
    wide = np.float64 if a.dtype.kind not in "iu" else a.dtype
    return np.matmul(a.astype(wide), b.astype(wide))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("m,n,k", SIZES)
def test_matmul_of_every_dtype(dtype, m, n, k):
    rng = np.random.default_rng(0)
    a, b = random(rng, (m, k), dtype), random(rng, (k, n), dtype)
    assert_near(reference(a, b), run("matmul", [a, b], [((m, n), dtype)]), scale=k**0.5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32"])
@pytest.mark.parametrize("size", [5, 48])
def test_matmul_takes_any_strides(dtype, size):
    rng = np.random.default_rng(0)
    dtype = next(d for d in FLOATS + INTEGERS if d.name == dtype)
    a, b = random(rng, (size, size + 1), dtype), random(rng, (size + 1, size + 2), dtype)
    expected = reference(a, b)
    for x in layouts(a):
        for y in layouts(b):
            for out in (
                garbage((size, size + 2), dtype),
                garbage((size + 2, size), dtype).T,
                garbage((size, 2 * size + 4), dtype)[:, ::2],
            ):
                assert_near(expected, run("matmul", [x, y], [out]), scale=8)


@pytest.mark.parametrize("size", [4, 40])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_matmul_batches_and_broadcasts(dtype, size):
    rng = np.random.default_rng(0)
    a, b = random(rng, (3, 2, size, size), dtype), random(rng, (3, 2, size, size), dtype)
    swapped = np.ascontiguousarray(a.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    one = np.broadcast_to(b[0, 0], b.shape)
    rows = np.broadcast_to(b[:, :1], b.shape)
    for x in (a, swapped, np.broadcast_to(a[0, 0], a.shape), np.broadcast_to(a[:1], a.shape)):
        for y in (b, one, rows, b.swapaxes(-1, -2)):
            assert_near(reference(x, y), run("matmul", [x, y], [(a.shape, dtype)]), scale=8)


def test_matmul_of_rows_against_one_matrix():
    rng = np.random.default_rng(0)
    a, b = random(rng, (6, 1, 9), "float32"), random(rng, (9, 4), "float32")
    assert_near(reference(a, b), run("matmul", [a, np.broadcast_to(b, (6, 9, 4))], [((6, 1, 4), "float32")]))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", [4, 60])
def test_matmul_adds_a_bias(dtype, size):
    rng = np.random.default_rng(0)
    a, b, bias = (
        random(rng, (2, size, size), dtype),
        random(rng, (2, size, size + 3), dtype),
        random(rng, (size + 3,), dtype),
    )
    for line in layouts(bias):
        expected = reference(a, b) + bias.astype(np.float64)
        assert_near(expected, run("matmul", [a, b, line], [((2, size, size + 3), dtype)]), scale=8)


def test_matmul_of_nothing():
    zeros = run("matmul", [np.empty((3, 0), "float32"), np.empty((0, 4), "float32")], [((3, 4), "float32")])
    np.testing.assert_array_equal(zeros, np.zeros((3, 4), "float32"))
    bias = np.arange(4.0)
    filled = run("matmul", [np.empty((2, 3, 0)), np.empty((2, 0, 4)), bias], [((2, 3, 4), "float64")])
    np.testing.assert_array_equal(filled, np.broadcast_to(bias, (2, 3, 4)))
    assert run("matmul", [np.empty((0, 3)), np.empty((3, 4))], [((0, 4), "float64")]).shape == (0, 4)


def test_matmul_is_the_same_for_any_number_of_threads():
    from tandem import _runtime

    if _runtime.blas_backend() == "openblas":
        pytest.skip("OpenBLAS splits sums by its number of threads")
    rng = np.random.default_rng(0)
    a, b = random(rng, (200, 300), "float64"), random(rng, (300, 100), "float64")
    before = _runtime.num_threads()
    try:
        results = []
        for n in (1, 2, 3):
            _runtime.set_num_threads(n)
            results.append(run("matmul", [a, b], [((200, 100), "float64")]))
    finally:
        _runtime.set_num_threads(before)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("rows", [1024, 1008, 100])
def test_a_transposed_operand_whose_columns_lie_4_kb_apart(rows):
    generator = np.random.default_rng(0)
    wide = generator.standard_normal((200, 1024)).astype(np.float32)
    b = generator.standard_normal((200, 70)).astype(np.float32)
    got = td.tensor(wide)[:, :rows].T @ td.tensor(b)
    np.testing.assert_allclose(got.numpy(), wide[:, :rows].T @ b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_products_with_columns_that_lie_one_after_the_other(dtype):
    rng = np.random.default_rng(0)
    for m, k, n in itertools.product((3, 8), (1, 3, 4, 5, 8, 31, 64), (1, 3, 4, 6, 9, 33, 64)):
        a = rng.standard_normal((m, k)).astype(dtype)
        wide = rng.standard_normal((n, k + 3)).astype(dtype)  # rows begin anywhere
        product = td.tensor(a) @ td.tensor(wide)[:, 1 : k + 1].T
        np.testing.assert_allclose(product.numpy(), a @ wide[:, 1 : k + 1].T, rtol=1e-4, atol=1e-5)
