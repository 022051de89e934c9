"""DLPack, both ways and both versions of the protocol; capsules that nobody takes free what they hold."""

import gc

import numpy as np
import pytest

import tandem as td
from tandem import _runtime, dtypes, memory
from tandem._runtime import from_dlpack
from tests.tensor.arrays import LAYOUTS, NUMPY_DTYPES, sample

DTYPES = [t for t in NUMPY_DTYPES if t.name != "bfloat16"]  # NumPy itself does not know it


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_numpy_both_ways(dtype, layout):
    a = LAYOUTS[layout](sample(dtype))
    if not a.flags.writeable:
        a = a.copy()
    t = from_dlpack(a)
    b = np.from_dlpack(t)
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)
    if a.size:
        assert np.shares_memory(a, b)


def test_changes_are_seen_on_both_sides():
    t = _runtime.from_data([1.0, 2.0])
    a = np.from_dlpack(t)
    if not a.flags.writeable:  # NumPy before 2.1
        pytest.skip("this NumPy imports read-only")
    a[0] = 5
    assert t.tolist() == [5.0, 2.0]


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (2, 0)])
def test_a_capsule_that_nobody_takes_frees_its_tensor(version):
    gc.collect()
    before = memory.stats()["live_blocks"]
    t = _runtime.from_data([1.0, 2.0])
    capsule = t.__dlpack__(max_version=version)
    assert ("dltensor_versioned" in repr(capsule)) == (version is not None and version[0] >= 1)
    del t
    gc.collect()
    assert before + 1 == memory.stats()["live_blocks"]
    del capsule
    assert before == memory.stats()["live_blocks"]


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_lifetimes_across_a_capsule(version):
    gc.collect()
    before = memory.stats()["live_blocks"]
    t = _runtime.from_data([1.0, 2.0])
    capsule = t.__dlpack__(max_version=version)
    u = from_dlpack(capsule)
    with pytest.raises(ValueError, match="used already"):
        from_dlpack(capsule)
    del t, capsule
    gc.collect()
    assert u.tolist() == [1.0, 2.0]
    del u
    assert before == memory.stats()["live_blocks"]


def test_bfloat16_crosses():
    t = from_dlpack(_runtime.from_data([1.5, 2.5], dtypes.bfloat16).__dlpack__())
    assert t.dtype is dtypes.bfloat16
    assert t.tolist() == [1.5, 2.5]


def test_read_only_needs_the_new_protocol():
    a = np.arange(3.0)
    a.flags.writeable = False
    t = _runtime.from_numpy(a)
    with pytest.raises(BufferError, match="read-only"):
        t.__dlpack__()
    assert not from_dlpack(t.__dlpack__(max_version=(1, 0)))._writable
    assert from_dlpack(t.__dlpack__(copy=True))._writable
    assert from_dlpack(t, copy=True)._writable


def test_a_capsule_of_read_only_memory_says_so():
    a = np.arange(3.0)
    a.flags.writeable = False
    shared = td.from_dlpack(td.to_dlpack(td.from_numpy(a)))
    assert shared.tolist() == [0, 1, 2]
    with pytest.raises(td.TandemError, match="read-only"):
        shared.add_(1)


def test_copies_are_copies():
    a = np.arange(4.0)
    t = from_dlpack(a, copy=True)
    a[0] = 9
    assert t.tolist() == [0, 1, 2, 3]
    u = from_dlpack(t.__dlpack__(copy=True))
    assert u.data_ptr() != t.data_ptr()


def test_arguments_are_checked():
    t = _runtime.from_data([1.0])
    assert t.__dlpack_device__() == (1, 0)
    t.__dlpack__(stream=None, max_version=(1, 1), dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="CPU"):
        t.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="stream"):
        t.__dlpack__(stream=1)
    with pytest.raises(TypeError):
        t.__dlpack__(1)
    with pytest.raises(TypeError, match="no __dlpack__"):
        from_dlpack([1.0])
    with pytest.raises(ValueError, match="not a DLPack capsule"):
        import datetime

        from_dlpack(datetime.datetime_CAPI)


def test_a_producer_of_the_first_protocol_is_understood():
    class Old:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, stream=None):
            return self.array.__dlpack__()

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    assert from_dlpack(Old(np.arange(2.0))).tolist() == [0.0, 1.0]


def test_a_producer_on_another_device_is_refused():
    class Elsewhere:
        def __dlpack__(self, **_):
            raise AssertionError("must not be asked")

        def __dlpack_device__(self):
            return (4, 0)

    with pytest.raises(ValueError, match="device of type 4"):
        from_dlpack(Elsewhere())
