"""Blocks of a cache: sequences take them as they grow and give them back."""

import numpy as np
import pytest

import tandem as td
from tandem.errors import ValueRangeError
from tandem.generation import BlockPool, PagedCache, StaticCache


def test_blocks_are_taken_whole_or_not_at_all_and_come_back():
    pool = BlockPool(6, 4)
    assert pool.grow("a", 5) and pool.grow("b", 4) and pool.free == 2
    assert not pool.grow("c", 12) and pool.free == 2 and "c" not in pool.tables
    assert pool.grow("a", 8) and pool.free == 2, "there was room in its last block"
    assert not set(pool.tables["a"]) & set(pool.tables["b"]) and 0 not in pool.tables["a"]
    pool.release("a")
    assert pool.free == 4 and pool.grow("c", 16)
    assert pool.table(["b", None], 2)[1] == [0, 0]
    with pytest.raises(ValueRangeError, match="hold nothing"):
        BlockPool(1, 4)


def test_a_paged_cache_holds_what_a_static_one_does():
    static, paged = StaticCache(1, 2, 3, 12, 4), PagedCache(1, 3, 4, blocks=9, size=4)
    td.manual_seed(0)
    lengths = [0, 0]
    for count in (5, 1, 2):
        k, v = td.randn(2, 3, count, 4), td.randn(2, 3, count, 4)
        positions = td.tensor(lengths)[:, None] + td.arange(count)
        lengths = [lengths[0] + count, lengths[1] + count - 1]  # the second row takes one back
        for name in "ab":
            assert paged.pool.grow(name, lengths[0] + 1)
        paged.select(["a", "b"], lengths[0])
        one, other = (cache.begin(positions, lengths[0]) for cache in (static, paged))
        for x, y in zip(one.extend(0, k, v), other.extend(0, k, v), strict=True):
            assert np.array_equal(x.numpy(), y[:, :, : lengths[0]].numpy())
        assert np.array_equal(one.mask.numpy(), other.mask[..., : lengths[0]].numpy())
