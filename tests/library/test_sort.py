import numpy as np
import pytest

from tests.library.layouts import BFLOAT16, FLOATS, INTEGERS, layouts, random, run


def values_with_ties(rng, shape, dtype):
    x = random(rng, shape, dtype)
    if x.dtype.kind in "iu":
        return x
    x = (x * 4).astype("float32").round().astype(dtype)  # many ties
    x.reshape(-1)[rng.random(x.size) < 0.05] = np.nan
    x.reshape(-1)[rng.random(x.size) < 0.05] = -np.inf
    x.reshape(-1)[rng.random(x.size) < 0.05] = -0.0
    return x


def comparable(x):
    return x.astype("float32") if x.dtype == BFLOAT16 else x


def stable_order(x, axis, descending):
    x = comparable(x)
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    # The stable descending order is the reversed ascending order of the reversed line.
    flipped = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(flipped, axis)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + [np.dtype("bool")], ids=str)
@pytest.mark.parametrize("descending", [0, 1])
@pytest.mark.parametrize(
    "shape,axis", [((9,), 0), ((3, 50), 1), ((50, 3), 0), ((2, 3000), 1), ((4, 0), 1), ((0, 4), 1)]
)
def test_sort(dtype, descending, shape, axis):
    rng = np.random.default_rng(0)
    x = random(rng, shape, "float32") > 0 if dtype.kind == "b" else values_with_ties(rng, shape, dtype)
    order = stable_order(x, axis, descending)
    for y in layouts(x):
        values, indices = run("sort", [y], [(shape, dtype), (shape, "int64")], [axis, descending, 1])
        np.testing.assert_array_equal(indices, order)
        np.testing.assert_array_equal(comparable(values), comparable(np.take_along_axis(x, order, axis)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint64"])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("k", [0, 1, 2, 7, 40])
def test_topk(dtype, largest, k):
    x = values_with_ties(np.random.default_rng(0), (5, 40, 2), dtype)
    order = stable_order(x, 1, largest)[:, :k]
    values, indices = run("topk", [x], [((5, k, 2), dtype), ((5, k, 2), "int64")], [1, k, largest, 1])
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


def test_sort_of_a_scalar():
    values, indices = run("sort", [np.float32(3)[...]], [((), "float32"), ((), "int64")], [0, 0, 1])
    assert (values, indices) == (3, 0)
