import numpy as np
import pytest

from tests.library.layouts import FLOATS, INTEGERS, assert_near, garbage, layouts, random, run

AT = {1: np.add, 2: np.maximum, 3: np.minimum, 4: np.multiply}


def reference(base, updates, indices, mode):
    out = base.copy()
    if mode == 0:
        for position in np.ndindex(indices[0].shape):
            out[tuple(i[position] for i in indices)] = updates[position]
    else:
        AT[mode].at(out, tuple(indices), updates)
    return out


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("mode", range(5))
@pytest.mark.parametrize("k,index_shape", [(1, (20,)), (2, (3, 4)), (1, (0,)), (3, (9,))])
def test_scatter(dtype, mode, k, index_shape):
    rng = np.random.default_rng(0)
    base = random(rng, (6, 5, 4), dtype)
    index_type = "int64" if k == 1 else "int32"
    indices = [rng.integers(0, base.shape[a], index_shape).astype(index_type) for a in range(k)]
    updates = random(rng, (*index_shape, *base.shape[k:]), dtype)
    expected = reference(base, updates, indices, mode)
    for u in layouts(updates):
        assert_near(expected, run("scatter", [base, u, *indices], [(base.shape, dtype)], [k, mode]))
    out = garbage((4, 5, 6), dtype).T
    assert_near(expected, run("scatter", [np.asfortranarray(base), updates, *indices], [out], [k, mode]))


def test_scatter_in_place_and_of_bools():
    base = np.zeros((4,), bool)
    index = np.array([1, 1, 3])
    run("scatter", [base, np.ones(3, bool), index], [base], [1, 1])
    np.testing.assert_array_equal(base.view("uint8"), [0, 1, 0, 1])


@pytest.mark.parametrize("tail", [1, 30, 3000])
@pytest.mark.parametrize("mode", [0, 1])
def test_scatter_does_not_depend_on_threads(tail, mode):
    from tandem import _runtime

    rng = np.random.default_rng(0)
    base, updates = random(rng, (50, tail), "float32"), random(rng, (5000, tail), "float32")
    index = rng.integers(0, 50, 5000)
    expected = reference(base, updates, [index], mode)
    before = _runtime.num_threads()
    try:
        for n in (1, 2, 5):
            _runtime.set_num_threads(n)
            np.testing.assert_array_equal(
                run("scatter", [base, updates, index], [(base.shape, "float32")], [1, mode]), expected
            )
    finally:
        _runtime.set_num_threads(before)


def test_scatter_refuses_a_bad_index():
    with pytest.raises(Exception, match="index 7 is out of range for axis 0 with size 4"):
        run("scatter", [np.zeros(4), np.zeros(1), np.array([7])], [((4,), "float64")], [1, 0])
