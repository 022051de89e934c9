"""Tensors from numbers and nested lists, single elements, bytes."""

import math
from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tandem as td
from tandem import _runtime, dtypes
from tandem._runtime import from_data
from tests.tensor.arrays import LAYOUTS, NUMPY_DTYPES, sample


@pytest.mark.parametrize(
    "data, dtype, shape",
    [
        (1.5, dtypes.float32, ()),
        (3, dtypes.int64, ()),
        (True, dtypes.bool_, ()),
        (1j, dtypes.complex64, ()),
        ([], dtypes.float32, (0,)),
        ([[], []], dtypes.float32, (2, 0)),
        ([1, 2], dtypes.int64, (2,)),
        ([1, 2.0], dtypes.float32, (2,)),
        ([True, 2], dtypes.int64, (2,)),
        ([True, False], dtypes.bool_, (2,)),
        ([1, 2j], dtypes.complex64, (2,)),
        (((1, 2), [3, 4]), dtypes.int64, (2, 2)),
        (range(4), dtypes.int64, (4,)),
        ([range(2), [5, 6]], dtypes.int64, (2, 2)),
        (np.float64(1.5), dtypes.float64, ()),
        ([np.int8(1), np.int8(2)], dtypes.int8, (2,)),
        ([np.int8(1), np.uint8(2)], dtypes.int16, (2,)),
        ([np.float16(1), ml_dtypes.bfloat16(2)], dtypes.float32, (2,)),
        ([np.zeros(2, np.float16), [1, 2.5]], dtypes.float16, (2, 2)),
        ([np.zeros(2, np.int32), [1, 2.5]], dtypes.float32, (2, 2)),
        ([Decimal("0.5"), Fraction(1, 4)], dtypes.float32, (2,)),
        (bytearray(b"ab"), dtypes.uint8, (2,)),
    ],
)
def test_shape_and_default_type(data, dtype, shape):
    t = from_data(data)
    assert (dtype, shape) == (t.dtype, t.shape)
    assert t.is_contiguous()
    if not isinstance(data, (bytearray, range)) and shape:
        np.testing.assert_array_equal(np.array(data, dtype.numpy), _runtime.to_numpy(t))


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
def test_lists_convert_like_numpy(dtype):
    values = [[0, 1, 2], [3, 100, 127]]
    t = from_data(values, dtypes.as_dtype(dtype))
    expected = np.array(values).astype(dtype)
    np.testing.assert_array_equal(expected, _runtime.to_numpy(t))
    assert expected.tolist() == t.tolist()
    assert expected.flat[5].item() == from_data(127, dtypes.as_dtype(dtype)).item()


def test_tensors_among_the_data():
    row = from_data([1.0, 2.0])
    t = from_data([row, [3, 4], np.array([5, 6])])
    assert dtypes.float32 is t.dtype
    assert t.tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    again = from_data(row)
    assert again.data_ptr() != row.data_ptr()
    assert dtypes.int32 is from_data(row, dtypes.int32).dtype
    assert from_data([from_data(1), from_data(2)] and [[from_data(1), from_data(2)]]).tolist() == [[1, 2]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_of_any_layout(layout):
    a = LAYOUTS[layout](sample(np.int32))
    np.testing.assert_array_equal(np.stack([a, a]), _runtime.to_numpy(from_data([a, a])))


@pytest.mark.parametrize(
    "data, text",
    [
        ([[1, 2], [3]], r"data\[1\] has 1 elements where others have 2"),
        ([[1, 2], 3], r"data\[1\] is a number where others have 2"),
        ([1, [2]], r"data\[1\] has elements of its own where others are numbers"),
        ([[[1], [2]], [[3], [4, 5]]], r"data\[1\]\[1\] has 2 elements where others have 1"),
        ([[], [1]], r"data\[1\] has 1 elements where others have 0"),
        ([[[1]], []], r"data\[1\] has 0 elements where others have 1"),
        ([np.zeros(2), np.zeros(3)], r"data\[1\] has 3 elements where others have 2"),
    ],
)
def test_ragged_lists_name_the_place(data, text):
    with pytest.raises(ValueError, match=text):
        from_data(data)


@pytest.mark.parametrize(
    "data, dtype, text",
    [
        ("abc", None, "of type str"),
        (["a"], None, r"data\[0\] is of type str"),
        ([1, None], None, r"data\[1\] is of type NoneType"),
        (b"abc", None, "of type bytes"),
        ({1: 2}, None, "of type dict"),
        (2**63, None, "does not fit int64"),
        ([0, -1], dtypes.uint8, r"data\[1\]: -1 does not fit uint8"),
        (300, dtypes.int8, "300 does not fit int8"),
        (2**64, dtypes.uint64, "does not fit uint64"),
        (float("nan"), dtypes.int32, "nan does not fit int32"),
        (1e30, dtypes.int64, "does not fit int64"),
        (10**400, dtypes.float32, "does not fit"),
        (1j, dtypes.float32, "is complex"),
    ],
)
def test_what_is_no_number_or_does_not_fit(data, dtype, text):
    with pytest.raises((TypeError, ValueError), match=text):
        from_data(data, dtype)


def test_nesting_has_an_end():
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested deeper"):
        from_data(loop)
    deep = 1.0
    for _ in range(16):
        deep = [deep]
    assert from_data(deep).shape == (1,) * 16


def test_arrays_in_lists_are_copied_whatever_their_strides():
    a = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    expected = np.stack([a.transpose(2, 0, 1), a.transpose(2, 0, 1)[::-1]])
    assert np.array_equal(expected, td.tensor([a.transpose(2, 0, 1), a.transpose(2, 0, 1)[::-1]]).numpy())
    # Rows of nothing are not walked, however many there are.
    assert (2, 1 << 40, 0) == td.tensor([td.zeros(1 << 40, 0)] * 2).shape
    assert (1, 1 << 40, 0) == td.tensor([td.zeros(1 << 40, 0)], dtype=td.int32).shape


def test_lists_that_change_while_they_are_read():
    data = [0.0] * 10

    class Evil:
        def __float__(self):
            data.clear()
            return 1.0

    data[3] = Evil()
    with pytest.raises(ValueError, match="changed while"):
        from_data(data)


@given(st.floats())
def test_half_precision_rounds_like_numpy(x):
    with np.errstate(over="ignore"):
        half = float(np.float64(x).astype(np.float16))
        double = x
    for expected, dtype in ((half, dtypes.float16), (double, dtypes.float64)):
        value = from_data(x, dtype).item()
        assert value == expected or (math.isnan(value) and math.isnan(expected))
    if abs(x) < 1e30 or math.isinf(x) or math.isnan(x):
        value = from_data(float(np.float32(x)), dtypes.bfloat16).item()
        expected = float(np.float32(x).astype(ml_dtypes.bfloat16))
        assert value == expected or (math.isnan(value) and math.isnan(expected))


@pytest.mark.parametrize("dtype", NUMPY_DTYPES[9:11], ids=str)
def test_every_16_bit_float_survives(dtype):
    a = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    t = _runtime.from_numpy(a)
    with np.errstate(all="ignore"):
        expected = a.astype(np.float64)
    np.testing.assert_array_equal(expected, np.array(t.tolist()))
    finite = a[np.isfinite(expected)]
    again = from_data(finite.astype(np.float64).tolist(), t.dtype)
    np.testing.assert_array_equal(finite.view(np.uint16), _runtime.to_numpy(again).view(np.uint16))


def test_extremes_are_exact():
    for dtype, value in [
        (dtypes.uint64, 2**64 - 1),
        (dtypes.int64, -(2**63)),
        (dtypes.uint32, 2**32 - 1),
        (dtypes.float64, 5e-324),
        (dtypes.complex128, 1e-300 - 1e300j),
    ]:
        assert value == from_data(value, dtype).item()


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bytes_round_trip(dtype, layout):
    a = LAYOUTS[layout](sample(dtype))
    t = _runtime.from_numpy(a)
    data = _runtime.to_bytes(t)
    assert a.tobytes() == data
    u = _runtime.from_bytes(data, t.dtype, t.shape)
    assert a.tolist() == u.tolist()
    assert u._writable


def test_bytes_must_be_as_many_as_the_shape_takes():
    with pytest.raises(ValueError, match="takes 8 bytes, got 3"):
        _runtime.from_bytes(b"abc", dtypes.float32, (2,))


def test_alias_stays_inside():
    t = from_data([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert _runtime.alias(t, (2, 3), (1, 1), 0).tolist() == [[0, 1, 2], [1, 2, 3]]
    assert _runtime.alias(t, (3,), (-2,), 5).tolist() == [5, 3, 1]
    assert _runtime.alias(t, (2,), (0,), 2).tolist() == [2, 2]
    assert _runtime.alias(t, (), (), 4).item() == 4.0
    assert _runtime.alias(t, (0, 9), (1, 1), 100).shape == (0, 9)
    for shape, strides, offset in [
        ((7,), (1,), 0),
        ((2,), (-1,), 0),
        ((2,), (1,), 5),
        ((1,), (1,), -1),
        ((3,), (2**62,), 0),
    ]:
        with pytest.raises(IndexError, match="leaves the storage of 6 elements"):
            _runtime.alias(t, shape, strides, offset)
    with pytest.raises(ValueError, match="not be negative"):
        _runtime.alias(t, (-1,), (1,), 0)
    with pytest.raises(ValueError, match="the shape has 1 axes and the strides 2"):
        _runtime.alias(t, (1,), (1, 1), 0)


def test_shapes_come_in_many_forms():
    for shape in ((2, 3), [2, 3], np.array([2, 3]), (np.int64(2), 3)):
        assert _runtime.empty(shape, dtypes.int8).shape == (2, 3)
    for shape in (4, np.int32(4), (4,)):
        assert _runtime.empty(shape, dtypes.int8).shape == (4,)
    for shape, error in (
        ("ab", TypeError),
        (1.5, TypeError),
        ((1.5,), TypeError),
        (None, TypeError),
        ((2, -1), ValueError),
    ):
        with pytest.raises(error):
            _runtime.empty(shape, dtypes.int8)
    with pytest.raises(ValueError, match="33 axes"):
        _runtime.empty((1,) * 33, dtypes.int8)
    with pytest.raises(TypeError, match="not a dtype"):
        _runtime.empty((1,), "float33")
