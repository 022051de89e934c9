"""td.memory: memory comes back at once, statistics are exact, limits hold, and running out says who holds what."""

import gc
import threading

import numpy as np
import pytest

import tandem as td
from tandem import _runtime, dtypes, memory

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _clean():
    gc.collect()
    yield
    memory.set_limit(None)


def live():
    return memory.stats()["live_bytes"]


def test_memory_returns_the_moment_the_last_reference_goes():
    before = memory.stats()
    x = _runtime.empty((300, 100), dtypes.float32)
    assert live() >= before["live_bytes"] + x.nbytes
    assert memory.stats()["live_blocks"] == before["live_blocks"] + 1
    y = x.data
    del x
    assert live() > before["live_bytes"]  # the alias keeps it
    del y
    assert live() == before["live_bytes"]
    assert memory.stats()["live_blocks"] == before["live_blocks"]


def test_a_loop_of_large_tensors_asks_the_system_once():
    x = _runtime.empty((MIB,), dtypes.float32)
    del x
    before = memory.stats()
    for _ in range(10):
        x = _runtime.empty((MIB,), dtypes.float32)
        del x
    after = memory.stats()
    assert before["system_allocations"] == after["system_allocations"]
    assert before["allocations"] + 10 == after["allocations"]


def test_peak_is_the_highest_live_since_the_reset():
    memory.empty_cache()  # a block that fits well enough is not split, and counts as a whole
    memory.reset_peak()
    base = memory.stats()
    assert base["peak_bytes"] == base["live_bytes"]
    x = _runtime.empty((4 * MIB,), dtypes.uint8)
    del x
    assert memory.stats()["peak_bytes"] == base["live_bytes"] + 4 * MIB
    memory.reset_peak()
    assert memory.stats()["peak_bytes"] == memory.stats()["live_bytes"]


def test_empty_cache_returns_what_is_free_and_keeps_what_is_live():
    keep = _runtime.from_data([1.0, 2.0, 3.0])
    x = _runtime.empty((16 * MIB,), dtypes.uint8)
    del x
    before = memory.stats()["reserved_bytes"]
    memory.empty_cache()
    after = memory.stats()["reserved_bytes"]
    assert after <= before - 16 * MIB
    assert keep.tolist() == [1.0, 2.0, 3.0]


def test_the_limit_refuses_and_names_the_largest_tensors_with_their_lines():
    memory.empty_cache()
    large = _runtime.empty((2, MIB), dtypes.float32)  # this line is named below
    memory.set_limit(memory.stats()["reserved_bytes"] + 4 * MIB)
    with pytest.raises(td.errors.OutOfMemoryError) as caught:
        _runtime.empty((32 * MIB,), dtypes.uint8)
    text = str(caught.value)
    assert "out of memory: tried to allocate 32.00 MiB; live " in text
    assert "limit " in text
    assert "(td.memory.set_limit)" in text
    line = test_the_limit_refuses_and_names_the_largest_tensors_with_their_lines.__code__.co_firstlineno + 2
    assert f"largest: 8.00 MiB float32 (2, {MIB}) made at test_memory.py:{line}" in text
    assert "fix: " in text
    assert isinstance(caught.value, MemoryError)
    del large
    memory.set_limit(None)
    _runtime.empty((32 * MIB,), dtypes.uint8)


def test_results_of_large_operators_are_listed_with_their_lines():
    memory.empty_cache()
    memory.set_limit(memory.stats()["reserved_bytes"] + 24 * MIB)
    kept = []
    with pytest.raises(td.OutOfMemoryError) as caught:
        for _ in range(100):
            kept.append(td.ones((2, MIB)) + 1)
    line = test_results_of_large_operators_are_listed_with_their_lines.__code__.co_firstlineno + 6
    assert f"8.00 MiB float32 (2, {MIB}) made at test_memory.py:{line}" in str(caught.value)


def test_the_cache_is_emptied_before_the_limit_refuses():
    memory.empty_cache()
    memory.set_limit(memory.stats()["reserved_bytes"] + 20 * MIB)
    for size in (10, 14, 18):
        x = _runtime.empty((size * MIB,), dtypes.uint8)
        del x


@pytest.mark.parametrize("shape", [(1 << 62,), (1 << 40, 1 << 40), (1 << 45,), (0, 1 << 40, 1 << 40)])
def test_absurd_sizes_are_an_error_and_not_a_crash(shape):
    with pytest.raises(MemoryError, match="out of memory"):
        _runtime.empty(shape, dtypes.float32)


def test_limits_must_make_sense():
    with pytest.raises(ValueError, match="must not be negative"):
        memory.set_limit(-1)


def test_memory_of_others_is_not_counted():
    before = live()
    x = _runtime.from_numpy(np.zeros(MIB))
    assert before == live()
    del x


def test_threads_allocate_and_free_at_the_same_time():
    before = memory.stats()
    errors = []

    def work(seed):
        random = np.random.default_rng(seed)
        kept = []
        try:
            for _ in range(2000):
                n = int(random.integers(0, 20000))
                x = _runtime.empty((n,), dtypes.float32)
                _runtime.to_numpy(x)[...] = seed
                kept.append(x)
                if len(kept) > 20:
                    old = kept.pop(int(random.integers(0, 20)))
                    assert (np.asarray(old) == seed).all()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    gc.collect()
    assert memory.stats()["live_bytes"] == before["live_bytes"]


def test_smaller_tensors_take_the_memory_of_larger_ones_rather_than_new_memory():
    """What a smaller batch does: three quarters of every size, after all of the larger ones have gone."""
    memory.empty_cache()
    large = [_runtime.empty((4, MIB), dtypes.float32) for _ in range(20)]
    del large
    before = memory.stats()
    smaller = [_runtime.empty((3, MIB - k), dtypes.float32) for k in range(12)]  # while there is plenty
    after = memory.stats()
    assert before["system_allocations"] == after["system_allocations"]
    assert before["reserved_bytes"] == after["reserved_bytes"]
    del smaller
    again = [_runtime.empty((4, MIB), dtypes.float32) for _ in range(20)]  # the larger ones find theirs again
    assert len(again) == 20 and before["system_allocations"] == memory.stats()["system_allocations"]


@pytest.mark.parametrize("count", [0, 1, 5000, 300_000, 3 * MIB])
def test_zeros_are_zero_in_memory_that_was_used_before_as_in_fresh_memory(count):
    for _ in range(3):
        x = _runtime.zeros((2, count), dtypes.float32)
        assert x.shape == (2, count) and not x.numpy().any()
        x.fill_(1)
        del x


def test_blocks_smaller_than_a_huge_page_share_what_is_asked_of_the_system():
    memory.empty_cache()
    large = _runtime.empty((40 * MIB,), dtypes.uint8)
    before = memory.stats()
    blocks = [_runtime.zeros((100_000 + 10_000 * k,), dtypes.uint8) for k in range(100)]
    after = memory.stats()
    assert after["system_allocations"] <= before["system_allocations"] + 10
    assert after["live_blocks"] == before["live_blocks"] + 100
    for k, block in enumerate(blocks):
        block.fill_(k)
    assert [int(b.numpy().min()) for b in blocks] == [int(b.numpy().max()) for b in blocks] == list(range(100))
    del blocks, block, large
    memory.empty_cache()
    assert memory.stats()["reserved_bytes"] <= before["reserved_bytes"]
