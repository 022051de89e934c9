"""Blocks of the arena."""

from __future__ import annotations

import numpy as np

from tandem.export.c99.arena import Arena


def test_blocks_of_the_arena_that_live_at_one_time_lie_apart():
    rng = np.random.default_rng(0)
    for _ in range(20):
        arena = Arena()
        for i in range(30):
            first = int(rng.integers(0, 20))
            arena.add(i, int(rng.integers(1, 1000)), first, first + int(rng.integers(0, 5)))
        offsets, size = arena.plan()
        for i, n, first, last in arena.blocks:
            assert offsets[i] % 16 == 0 and offsets[i] + n <= size
            for j, m, other, end in arena.blocks:
                if i != j and first <= end and other <= last:
                    assert offsets[i] + n <= offsets[j] or offsets[j] + m <= offsets[i]
