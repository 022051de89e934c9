import numpy as np
import pytest

from tests.library.layouts import FLOATS, INTEGERS, assert_near, layouts, random, run

KINDS = [np.cumsum, np.cumprod, np.maximum.accumulate, np.minimum.accumulate]


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("shape,axis", [((7,), 0), ((3, 9), 1), ((9, 3), 0), ((4, 6, 70), 1), ((2, 0), 1), ((0, 2), 1)])
def test_cumulative(dtype, kind, reverse, shape, axis):
    x = random(np.random.default_rng(0), shape, dtype)
    wide = np.dtype("float64") if dtype not in INTEGERS else dtype
    turned = np.flip(x.astype(wide), axis) if reverse else x.astype(wide)
    options = {} if kind > 1 else {"dtype": wide}
    expected = KINDS[kind](turned, axis=axis, **options)
    expected = np.flip(expected, axis) if reverse else expected
    for y in layouts(x):
        assert_near(expected, run("cumulative", [y], [(shape, dtype)], [axis, kind, reverse]))


def test_cumulative_sum_widens_integers():
    x = np.full((3, 200), 100, "int8")
    np.testing.assert_array_equal(
        run("cumulative", [x], [((3, 200), "int64")], [1, 0, 0]), np.cumsum(x, 1, dtype="int64")
    )
    flags = np.ones((5, 300), bool)
    np.testing.assert_array_equal(run("cumulative", [flags], [((5, 300), "int64")], [0, 0, 0]), np.cumsum(flags, 0))


def test_cumulative_max_keeps_nan():
    x = np.array([1, np.nan, 3], "float32")
    np.testing.assert_array_equal(run("cumulative", [x], [((3,), "float32")], [0, 2, 0]), [1, np.nan, np.nan])


def test_cumulative_in_threads():
    x = random(np.random.default_rng(0), (300, 1000), "float32")
    for axis in (0, 1):
        expected = np.cumsum(x, axis, dtype="float64")
        assert_near(expected, run("cumulative", [x], [(x.shape, "float32")], [axis, 0, 0]), scale=10)
