import itertools

import numpy as np
import pytest

from tests.library.layouts import garbage, layouts, random, run


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64", "complex128", "bool"])
@pytest.mark.parametrize("shape", [(), (5,), (0, 3), (4, 1, 6), (70, 130), (3, 40, 50), (2, 3, 4, 5, 6)])
def test_copy_between_any_layouts(dtype, shape):
    rng = np.random.default_rng(0)
    values = np.asarray(random(rng, shape, "float64") * 10).astype(dtype)
    for source, permutation in itertools.product(
        layouts(values), itertools.islice(itertools.permutations(range(len(shape))), 6)
    ):
        out = garbage([shape[p] for p in permutation], dtype).transpose(np.argsort(permutation))
        np.testing.assert_array_equal(run("copy", [source], [out]), values)


def test_copy_of_a_broadcast_array_and_into_a_strided_one():
    line = np.broadcast_to(np.arange(5.0)[:, None], (5, 300))
    np.testing.assert_array_equal(run("copy", [line], [((5, 300), "float64")]), line)
    out = np.zeros((10, 20), "float32")
    run("copy", [np.ones((5, 10), "float32")], [out[::2, ::-2]])
    assert out.sum() == 50


def test_copy_in_threads():
    x = np.random.default_rng(0).standard_normal((1000, 700)).astype("float32")
    np.testing.assert_array_equal(run("copy", [x.T], [((700, 1000), "float32")]), x.T)
    np.testing.assert_array_equal(run("copy", [x], [((1000, 700), "float32")]), x)
