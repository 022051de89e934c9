"""NumPy arrays and tensors share memory both ways; nothing dangles, whoever goes first."""

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

from tandem import _runtime, dtypes
from tandem._runtime import from_numpy, to_numpy
from tests.tensor.arrays import LAYOUTS, NUMPY_DTYPES, sample


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_round_trip_keeps_values_type_and_layout(dtype, layout):
    a = LAYOUTS[layout](sample(dtype))
    t = from_numpy(a)
    b = to_numpy(t)
    assert a.shape == t.shape == b.shape
    assert a.dtype == b.dtype
    assert t.dtype.name == a.dtype.name
    np.testing.assert_array_equal(a, b)
    assert a.tolist() == t.tolist()
    assert a.flags.writeable == b.flags.writeable
    if a.size > 1:
        assert np.shares_memory(a, b)
        assert [s for s, n in zip(a.strides, a.shape) if n > 1] == [s for s, n in zip(b.strides, b.shape) if n > 1]


def test_changes_are_seen_on_both_sides():
    a = np.zeros((2, 3), np.float32)
    t = from_numpy(a)
    b = to_numpy(t)
    a[0, 0] = 1
    b[1, 2] = 2
    assert [[1, 0, 0], [0, 0, 2]] == t.tolist() == a.tolist()


def test_an_array_keeps_the_memory_of_a_dead_tensor():
    t = _runtime.from_data([[1.0, 2.0], [3.0, 4.0]])
    a = to_numpy(t)
    b = a[::-1, 1]
    del t, a
    gc.collect()
    _runtime.from_data([[9.0, 9.0], [9.0, 9.0]])  # would land in the freed block
    assert b.tolist() == [4.0, 2.0]


def test_a_tensor_keeps_the_array_it_came_from():
    class Array(np.ndarray):
        pass

    a = np.arange(5.0).view(Array)
    gone = weakref.ref(a)
    t = from_numpy(a)
    u = t.data
    del a, t
    gc.collect()
    assert gone() is not None
    assert u.tolist() == [0, 1, 2, 3, 4]
    del u
    assert gone() is None


def test_an_array_that_comes_home_shares_storage_and_versions():
    t = _runtime.from_data([1.0, 2.0])
    for array in (to_numpy(t), np.asarray(t)):
        u = from_numpy(array[1:])
        assert u.storage_offset() == 1
        assert t.data_ptr() + 4 == u.data_ptr()


def test_read_only_arrays_stay_read_only():
    a = np.arange(3.0)
    a.flags.writeable = False
    t = from_numpy(a)
    assert not t._writable
    b = to_numpy(t)
    assert not b.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        b.flags.writeable = True
    t = _runtime.from_data([1.0])
    c = to_numpy(t)
    c.flags.writeable = False
    assert not from_numpy(c)._writable
    assert t._writable


@pytest.mark.parametrize(
    "array, text",
    [
        (np.array(["a"]), "dtype <U1"),
        (np.array([None]), "dtype object"),
        (np.array(["2020-01-01"], "M8[D]"), r"dtype datetime64\[D\]"),
        (np.zeros(2, np.longdouble), "dtype (float128|longdouble)"),
        (np.zeros(2, ">f4"), "dtype >f4 has its bytes in the order of another machine"),
        (np.zeros(2, ml_dtypes.float8_e5m2), "dtype float8_e5m2"),
        (np.zeros(3, [("a", "i1"), ("b", "f4")])["b"], "a stride of 5 bytes"),
        (np.zeros(9, np.uint8)[1:].view(np.float32), "an address that is no multiple"),
        (np.zeros((1,) * 33), "33 axes; at most 32"),
    ],
)
def test_what_cannot_be_shared_says_so(array, text):
    with pytest.raises((TypeError, ValueError), match=text):
        from_numpy(array)


def test_only_arrays_are_taken():
    for value in (1.0, [1.0], "a", None, np.float32(1)):
        with pytest.raises(TypeError):
            from_numpy(value)


def test_as_argument_of_numpy():
    t = _runtime.from_data([[1.0, 2.0], [3.0, 4.0]])
    assert np.shares_memory(np.asarray(t), to_numpy(t))
    assert not np.shares_memory(np.array(t), to_numpy(t))
    assert np.asarray(t, np.float64).dtype == np.float64
    assert not np.shares_memory(np.asarray(t, copy=True), to_numpy(t))
    with pytest.raises(ValueError, match="copy"):
        np.asarray(t, np.int32, copy=False)
    for array in (t.__array__(), t.__array__(np.float32), t.__array__(copy=False)):
        assert np.shares_memory(array, to_numpy(t))
    with pytest.raises(ValueError, match="without a copy"):
        t.__array__(np.int32, copy=False)
    assert t.__array__(np.int32).tolist() == [[1, 2], [3, 4]]
    assert not np.shares_memory(t.__array__(copy=True), to_numpy(t))
    np.testing.assert_array_equal(np.exp(np.asarray(t)), np.exp(t))


def test_tensors_that_require_grad_do_not_slip_out():
    t = _runtime.from_data([1.0])
    t.requires_grad = True
    for leave in (np.asarray, np.from_dlpack):
        with pytest.raises(RuntimeError, match="requires gradients"):
            leave(t)
    with pytest.raises(BufferError, match="requires gradients"):
        memoryview(t)
    assert np.asarray(t.data).tolist() == [1.0]


def test_bfloat16_is_that_of_ml_dtypes():
    a = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    t = from_numpy(a)
    assert t.dtype is dtypes.bfloat16
    assert to_numpy(t).dtype == a.dtype
    assert t.tolist() == [1.5, -2.0]
