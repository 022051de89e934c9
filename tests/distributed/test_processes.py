"""Ranks as processes: the shared-memory engine, `tandem run`, and what happens when a rank dies, fails or is interrupted."""

import os

import numpy as np

import tandem as td
from tandem import distributed as dist
from tests.distributed.ranks import run


def foreign_memory():
    """All-reduce of memory that others cannot look at on one rank, and can on the other."""
    x = td.from_numpy(np.ones(300_000, np.float32)) if dist.get_rank() == 0 else td.ones(300_000)
    for _ in range(3):
        dist.all_reduce(x)
    return float(x.min()), float(x.max())


def stays_and_comes_again():
    """What collectives meet again lies where others can look at it; what shares memory with NumPy stays where it is."""
    stays, array = td.ones(100_000), np.ones(100_000, np.float32)
    foreign = td.from_numpy(array)
    viewed = td.ones(100_000)
    part = viewed[:]
    for _ in range(3):
        for x in (stays, foreign, viewed):
            dist.all_reduce(x)
    again = td._runtime.move_to_shared_heap(td.from_numpy(array))
    return float(stays.min()), float(array.max()), float(part.max()), again


def compiled_readers():
    """In a compiled function a tensor's memory stays where its earlier readers found it."""

    @td.compile
    def step(x):
        y = x * 2
        dist.all_reduce(x)
        return y, x + 1

    results = []
    for _ in range(3):
        x = td.ones(100_000) * (dist.get_rank() + 1)
        y, z = step(x)
        results.append((float(y.max()) == 2 * (dist.get_rank() + 1), float(z.min()), float(x.min())))
    return results


def forked_children():
    """A child of fork neither takes nor gives back memory that its parent shares with other ranks."""
    for _ in range(2):  # from the second time on blocks of this size are those that others can look at
        x = td.full((1 << 18,), 3.0)
        dist.all_reduce(x)
    spare = td.ones(1 << 18)
    del spare  # a free block of the heap
    pid = os.fork()
    if pid == 0:
        y = td.full((1 << 18,), 5.0)
        x.fill_(9.0)  # its own copy of a tensor that lies there
        os._exit(0 if float(y.sum()) == 5.0 * (1 << 18) else 1)
    z = td.full((1 << 18,), 7.0)
    _, status = os.waitpid(pid, 0)
    dist.all_reduce(z)
    return status, float(x.max()), float(z.min()), float(z.max())


def several():
    return foreign_memory(), stays_and_comes_again(), compiled_readers(), forked_children()


def test_memory_of_ranks():
    """Memory that others cannot look at, children of fork that leave shared memory alone, and no name in the file system."""
    before = set(os.listdir("/dev/shm"))
    assert (
        dist.spawn(several, 2)
        == [((8.0, 8.0), (8.0, 8.0, 8.0, False), [(True, 4.0, 3.0)] * 3, (0, 6.0, 14.0, 14.0))] * 2
    )
    assert not {name for name in set(os.listdir("/dev/shm")) - before if "tandem" in name}


_WAITING = """
import os, time, tandem as td
dist = td.distributed
dist.init_process_group()
if dist.get_rank() == 0:
    waiting = [dist.irecv(td.ones(10), 1), dist.all_reduce(td.ones(100000), async_op=True)]
while len([r for r in dist.flight_record() if r["rank"] == 0]) < 2:
    time.sleep(0.01)
"""


def test_collectives_in_the_background_end_with_their_rank(tmp_path):
    """Their threads end before the interpreter does; the line that began them is known."""
    show = """
if dist.get_rank() == 0:
    os.write(1, str(dist.flight_record()).encode())
"""
    done = run(tmp_path, _WAITING + show, "-n", "2")
    assert done.returncode == 0 and done.stderr == ""
    assert "all_reduce(sum) of float32 (100000,) at train.py:6" in done.stdout
    assert "recv of float32 (10,)" in done.stdout and done.stdout.count("at train.py:6") == 2


def test_a_failure_is_told_also_where_collectives_wait_in_the_background(tmp_path):
    fail = """
if dist.get_rank() == 0:
    raise ValueError("no data")
time.sleep(0.3)  # the thread that waits has noticed
dist.barrier()
"""
    done = run(tmp_path, _WAITING + fail, "-n", "2")
    assert "rank 1 ends: rank 0 failed (ValueError: no data, at" in done.stderr and "terminate" not in done.stderr
