"""Ranks that a program starts."""

import os
import types

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist
from tandem.distributed import spawning


def kinds(seed):
    """Every kind of collective, with sizes that pass through stages and sizes that are taken where they lie."""
    r, n = dist.get_rank(), dist.get_world_size()
    results = []
    for count in (3, 20_001):
        for dtype in (td.float32, td.bfloat16, td.int64):
            x = (td.arange(count * n) % 7 + r + seed).to(dtype)
            total, copy = x.clone(), x.clone()
            dist.all_reduce(total)
            dist.broadcast(copy, src=1)
            every = dist.functional.all_gather(x)
            mine = dist.functional.reduce_scatter(x)
            swapped = dist.functional.all_to_all(x)
            got = td.zeros(count * n, dtype=dtype)
            pending = dist.isend(x, (r + 1) % n), dist.irecv(got, (r - 1) % n)
            for p in pending:
                p.wait()
            results.append([t.to(td.float64).numpy() for t in (total, copy, every, mine, swapped, got)])
    return results


def test_processes_give_what_threads_give():
    """Tensors from before the group was made, from NumPy, and those of the heap that ranks share."""
    expected = dist.spawn(kinds, 2, (1,), engine="threads")
    for theirs, ours in zip(dist.spawn(kinds, 2, (1,)), expected, strict=True):
        for a, b in zip(theirs, ours, strict=True):
            for x, y in zip(a, b, strict=True):
                np.testing.assert_array_equal(y, x)


def fails_on_one(rank):
    if dist.get_rank() == rank:
        raise KeyError("lost")
    dist.barrier()


def test_spawn_raises_the_failing_ranks_own_exception():
    with pytest.raises(td.DistributedError, match=r"rank 1 of 2 failed:(?s:.)*KeyError: 'lost'"):
        dist.spawn(fails_on_one, 2, (1,))


def test_what_ranks_wait_for_a_processor_is_not_taken_from_their_time_to_end(monkeypatch):
    clock, waited = [0.0], [7.0]
    monkeypatch.setattr(spawning, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(spawning, "queued", lambda pid: waited[0])
    grace = spawning.Grace([1, 2])
    assert grace.left() == spawning.GRACE
    clock[0], waited[0] = 5.0, 11.5
    assert grace.left() == spawning.GRACE - 0.5
    clock[0], waited[0] = 31.0, 38.0
    assert grace.left() <= 0


def test_what_a_process_waited_for_a_processor_is_read_where_it_is_told():
    assert spawning.queued(os.getpid()) >= 0.0
    assert spawning.queued(2**30) == 0.0
