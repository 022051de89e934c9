"""The buffer protocol: memoryviews of tensors, and tensors on buffers."""

import array
import gc
import hashlib
import mmap
import struct

import numpy as np
import pytest

from tandem import _runtime, dtypes, memory
from tandem._runtime import from_buffer
from tests.tensor.arrays import LAYOUTS, NUMPY_DTYPES, sample

DTYPES = [t for t in NUMPY_DTYPES if t.name != "bfloat16"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_ways(dtype, layout):
    a = LAYOUTS[layout](sample(dtype))
    t = from_buffer(a)
    b = np.asarray(memoryview(t))
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    np.testing.assert_array_equal(a, b)
    assert a.flags.writeable == b.flags.writeable


def test_a_view_keeps_the_memory():
    gc.collect()
    before = memory.stats()["live_blocks"]
    t = _runtime.from_data([1.0, 2.0])
    view = memoryview(t)
    del t
    gc.collect()
    view[0] = 7.0
    assert view.tolist() == [7.0, 2.0]
    view.release()
    del view
    assert before == memory.stats()["live_blocks"]


def test_objects_with_buffers():
    assert from_buffer(bytearray([1, 2, 255])).tolist() == [1, 2, 255]
    assert from_buffer(bytearray(2))._writable
    assert not from_buffer(b"ab")._writable
    assert from_buffer(array.array("d", [1.5, 2.5])).tolist() == [1.5, 2.5]
    assert dtypes.int64 is from_buffer(array.array("q", [1])).dtype
    with mmap.mmap(-1, 16) as pages:
        t = from_buffer(pages)
        assert t.size == 16
        with pytest.raises(BufferError):  # as long as the tensor looks at it
            pages.close()
        del t


def test_changes_are_seen_on_both_sides():
    data = bytearray(3)
    t = from_buffer(data)
    data[1] = 4
    assert t.tolist() == [0, 4, 0]
    memoryview(t)[2] = 5
    assert bytearray([0, 4, 5]) == data


def test_consumers_that_understand_less_get_less():
    t = _runtime.from_numpy(np.arange(6.0).reshape(2, 3).T)
    with pytest.raises(BufferError, match="not contiguous"):
        hashlib.sha256(t)  # asks for plain bytes
    assert len(bytes(_runtime.from_data([1.0] * 6))) == 24
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    with pytest.raises(TypeError, match="read-write"):
        struct.pack_into("d", _runtime.from_numpy(fixed), 0, 1.0)


def test_bfloat16_has_no_format():
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(_runtime.from_data([1.0], dtypes.bfloat16))


def test_formats_without_counterpart():
    with pytest.raises(TypeError, match=r"format '(u|w)'"):
        from_buffer(array.array("u", "ab"))
    with pytest.raises(TypeError):
        from_buffer(object())
    with pytest.raises(TypeError, match="format '>f'"):
        from_buffer(np.zeros(2, ">f4"))
