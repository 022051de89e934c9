"""Types and shapes of results: the Array API's promotion table, and broadcasting as NumPy does it."""

import itertools

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tandem as td

SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]


def table():
    """(a, b, result) as the standard lists them."""
    for names in (SIGNED, UNSIGNED, FLOATS):
        for i, j in itertools.product(range(len(names)), repeat=2):
            yield names[i], names[j], names[max(i, j)]
    for i, j in itertools.product(range(4), range(3)):
        yield SIGNED[i], UNSIGNED[j], SIGNED[max(i, j + 1)]
    yield "bool", "bool", "bool"


@pytest.mark.parametrize(("a", "b", "result"), list(table()))
def test_table(a, b, result):
    assert td.dtypes.promote(td.dtypes.by_name(a), td.dtypes.by_name(b)).name == result
    assert td.dtypes.promote(td.dtypes.by_name(b), td.dtypes.by_name(a)).name == result


@pytest.mark.parametrize(
    ("a", "b"), [("int8", "uint8"), ("int32", "float32"), ("bool", "int16"), ("float32", "float64"), ("uint8", "int64")]
)
def test_results_have_the_promoted_type(a, b):
    x, y = td.ones(2, dtype=a), td.ones(2, dtype=b)
    expected = td.dtypes.promote(x.dtype, y.dtype)
    for name in ("add", "multiply", "maximum", "where"):
        out = td.where(td.tensor([True, False]), x, y) if name == "where" else getattr(td, name)(x, y)
        assert out.dtype is expected, name
    assert td.less(x, y).dtype is td.bool


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"])
def test_numbers_do_not_widen(dtype):
    x = td.ones(2, dtype=dtype)
    assert (x + 1).dtype is x.dtype and (2 * x).dtype is x.dtype and (x - True).dtype is x.dtype
    assert (x + 1.5).dtype is (x.dtype if x.dtype.is_floating else td.float32)
    assert (x / 2).dtype is (x.dtype if x.dtype.is_floating else td.float32)
    assert (x > 0.5).tolist() == [True, True]


@hypothesis.settings(max_examples=40, deadline=None, derandomize=True)
@hypothesis.given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4), st.integers(0, 2**32))
def test_broadcasting(shapes, seed):
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(-5, 6, s) for s in shapes.input_shapes)
    np.testing.assert_array_equal((td.tensor(x) + td.tensor(y)).numpy(), x + y)
    np.testing.assert_array_equal(td.where(td.tensor(x) > 0, td.tensor(x), td.tensor(y)).numpy(), np.where(x > 0, x, y))


@hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
@hypothesis.given(st.sampled_from(["add", "subtract", "multiply", "floor_divide", "remainder", "bitwise_xor", "maximum"]),
                  st.sampled_from(["int8", "int64", "uint8"]), st.data())  # fmt: skip
def test_integer_arithmetic_wraps_as_in_numpy(name, dtype, data):
    info = np.iinfo(dtype)
    values = st.lists(st.integers(info.min, info.max), min_size=5, max_size=5)
    x, y = np.array(data.draw(values), dtype), np.array(data.draw(values), dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
    np.testing.assert_array_equal(getattr(td, name)(td.tensor(x), td.tensor(y)).numpy(), expected)


@hypothesis.settings(max_examples=40, deadline=None, derandomize=True)
@hypothesis.given(
    st.sampled_from(["sum", "amax", "prod", "argmin", "any"]),
    hnp.array_shapes(min_dims=1, max_dims=4, max_side=4),
    st.data(),
)
def test_reductions_over_any_axes(name, shape, data):
    x = np.random.default_rng(0).integers(-3, 4, shape)
    if name == "argmin":
        axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    else:
        axis = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    got = getattr(td, name)(td.tensor(x), axis=axis)
    np.testing.assert_array_equal(got.numpy(), getattr(np, name)(x, axis=axis))


def test_shapes_that_do_not_fit():
    with pytest.raises(td.ShapeError, match="do not broadcast"):
        td.zeros((2, 3)) + td.zeros((2, 4))
