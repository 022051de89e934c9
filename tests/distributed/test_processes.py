"""Ranks as processes: the shared-memory engine, `tandem run`, and what happens when a rank dies, fails or is interrupted."""

import os
import signal
import socket
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tandem as td
from tandem import distributed as dist


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


def fails_on_one(rank):
    if dist.get_rank() == rank:
        raise KeyError("lost")
    dist.barrier()


def test_spawn_raises_the_failing_ranks_own_exception():
    with pytest.raises(td.DistributedError, match=r"rank 1 of 2 failed:(?s:.)*KeyError: 'lost'"):
        dist.spawn(fails_on_one, 2, (1,))


# -- tandem run


def run(tmp_path, program, *flags):
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(program))
    return subprocess.run(
        [sys.executable, "-m", "tandem", "run", *flags, str(path)], capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_run_starts_ranks_with_torchruns_environment(tmp_path):
    done = run(
        tmp_path,
        """
        import os, tandem as td
        td.distributed.init_process_group("gloo")
        x = td.tensor([float(os.environ["RANK"])])
        td.distributed.all_reduce(x)
        names = ("LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
        line = [td.distributed.get_rank(), x.item(), *[os.environ[n] for n in names], td.get_num_threads()]
        os.write(1, (" ".join(map(str, line)) + "\\n").encode())  # at once, whatever the other rank prints
        td.distributed.destroy_process_group()
        """,
        "--nproc_per_node=2",
    )
    assert done.returncode == 0, done.stderr
    lines = sorted(line.split() for line in done.stdout.splitlines())
    assert [line[:5] for line in lines] == [["0", "1.0", "0", "2", "2"], ["1", "1.0", "1", "2", "2"]]
    assert done.stderr == ""


def test_a_failing_rank_ends_all_with_its_traceback(tmp_path):
    done = run(
        tmp_path,
        """
        import tandem as td
        td.distributed.init_process_group()
        if td.distributed.get_rank() == 1:
            raise ValueError("no data")
        td.distributed.barrier()
        """,
        "-n", "2",
    )  # fmt: skip
    assert done.returncode == 1
    assert 'train.py", line 5, in <module>' in done.stderr and "ValueError: no data" in done.stderr
    assert "rank 0 ends: rank 1 failed (ValueError: no data, at" in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("tandem: rank 1 of 2 failed: ValueError: no data, at ")
    assert done.stderr.count("Traceback") == 1


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


def test_a_killed_rank_is_named_to_the_others_at_once(tmp_path):
    done = run(
        tmp_path,
        """
        import os, signal, time, tandem as td
        td.distributed.init_process_group()
        td.distributed.barrier()
        if td.distributed.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.monotonic()
        try:
            td.distributed.all_reduce(td.ones(3))
        except td.DistributedError as error:
            record = [e for e in td.distributed.flight_record() if e["rank"] == 1]
            print(error, record[-1]["call"], sep="|", flush=True)
            assert time.monotonic() - began < 20
        """,
        "-n", "2",
    )  # fmt: skip
    assert "rank 1 failed (process " in done.stdout and "was killed or it crashed" in done.stdout
    assert "all_reduce(sum) of float32 (3,) at train.py:9 cannot complete" in done.stdout
    assert "|barrier at train.py:4" in done.stdout  # what the dead rank did last
    assert "rank 1 of 2 failed: ended by signal SIGKILL" in done.stderr
    assert done.returncode == 128 + signal.SIGKILL


def test_an_interrupt_ends_all_ranks(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(
        "import tandem as td, os\n"
        "td.distributed.init_process_group()\n"
        "td.distributed.barrier()\n"
        "os.write(1, f'{os.getpid()}\\n'.encode())\n"
        "if td.distributed.get_rank() == 0: td.distributed.barrier()\n"
        "import time; time.sleep(60)\n"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-m", "tandem", "run", "-n", "2", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    pids = [int(launcher.stdout.readline()) for _ in range(2)]
    os.killpg(launcher.pid, signal.SIGINT)
    _, errors = launcher.communicate(timeout=60)
    assert launcher.returncode == 130, errors
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert "Traceback" not in errors


def test_mpi_and_slurm_environments(tmp_path):
    """Without a launcher of ours: rank 0 starts the key-value service in a process of its own."""
    path = tmp_path / "train.py"
    path.write_text(
        "import tandem as td\n"
        "td.distributed.init_process_group()\n"
        "x = td.ones(2)\n"
        "td.distributed.all_reduce(x)\n"
        "print(td.distributed.get_rank(), x.tolist(), flush=True)\n"
    )
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    names = {"OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID": "SLURM_NTASKS"}
    started = [
        subprocess.Popen(
            [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, rank_name: str(r), size_name: "2", "MASTER_PORT": port},
        )
        for r, (rank_name, size_name) in enumerate(names.items())
    ]  # fmt: skip
    outputs = [p.communicate(timeout=60) for p in started]
    assert [out for out, _ in outputs] == ["0 [2.0, 2.0]\n", "1 [2.0, 2.0]\n"], outputs


def test_a_program_without_a_launcher_is_a_group_of_one():
    dist.init_process_group()
    try:
        x = td.tensor([1.0, 2.0], requires_grad=True)
        dist.functional.all_reduce(x).sum().backward()
        assert (dist.get_rank(), dist.get_world_size(), x.grad.tolist()) == (0, 1, [1.0, 1.0])
        with pytest.raises(td.DistributedError, match="in a group already"):
            dist.init_process_group()
    finally:
        dist.destroy_process_group()
    assert not dist.is_initialized()
