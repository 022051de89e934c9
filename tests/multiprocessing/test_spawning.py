"""Processes that a program starts."""

import pytest

import tandem as td


def _in_a_process(i, shared, bad):
    if i == bad:
        raise ValueError("not this one")
    shared[i] = i + 1


def test_spawn():
    import tandem.multiprocessing as mp

    shared = td.multiprocessing.share_memory_(td.zeros(2))
    mp.spawn(_in_a_process, (shared, None), nprocs=2)
    assert shared.tolist() == [1, 2]
    with pytest.raises(mp.ProcessRaisedException, match=r"process 1 failed(.|\n)*not this one"):
        mp.spawn(_in_a_process, (shared, 1), nprocs=2)
