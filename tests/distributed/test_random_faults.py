"""Random collectives on processes, with one fault in each program: who is left ends, with an error that names the rank."""

import os
import random
import subprocess
import sys

import pytest

PROGRAM = r"""
import os, random, signal, sys, time
import tandem as td
from tandem import distributed as dist

seed, fault, victim, at, folder = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
dist.init_process_group()
rank, count, rng = dist.get_rank(), dist.get_world_size(), random.Random(seed)
with open(f"{folder}/{rank}", "w") as file:
    file.write(str(os.getpid()))

@td.compile
def doubled_sum(x):
    return dist.functional.all_reduce(x * 2)

def check(x, expected):
    assert float(x.min()) == float(x.max()) == expected, (kind, x, expected)

for i in range(40):
    if i == at and rank == victim:
        if fault in ("KILL", "SEGV"):
            os.kill(os.getpid(), getattr(signal, "SIG" + fault))
        if fault in ("INT", "TERM"):
            os.kill(os.getppid(), getattr(signal, "SIG" + fault))
        if fault == "raise":
            raise RuntimeError("planned")
        if fault == "exit":
            os._exit(3)
        if fault == "shape":
            dist.all_reduce(td.ones(12345))
        if fault == "slow":
            time.sleep(0.5)
    kinds = "sum background compiled gather broadcast scatter exchange barrier message object"
    kind = rng.choice(kinds.split())
    size, root, mine = rng.choice([1, 7, 1000, 20000, 300000]) * count, rng.randrange(count), [r + 1.0 + i for r in range(count)]
    x = td.full((size,), mine[rank])
    if kind == "sum":
        dist.all_reduce(x)
        check(x, sum(mine))
    elif kind == "background":
        y = x.clone()
        works = [dist.all_reduce(x, async_op=True), dist.all_reduce(y, op=dist.ReduceOp.MAX, async_op=True)]
        [work.wait() for work in works]
        check(x, sum(mine))
        check(y, mine[-1])
    elif kind == "compiled":
        check(doubled_sum(x), 2 * sum(mine))
    elif kind == "gather":
        parts = [td.zeros(size) for _ in mine]
        dist.all_gather(parts, x)
        [check(part, value) for part, value in zip(parts, mine)]
    elif kind == "broadcast":
        dist.broadcast(x, root)
        check(x, mine[root])
    elif kind == "scatter":
        part = td.zeros(size // count)
        dist.reduce_scatter_tensor(part, x)
        check(part, sum(mine))
    elif kind == "exchange":
        y = td.zeros(size)
        dist.all_to_all_single(y, x)
        [check(part, value) for part, value in zip(y.reshape(count, -1), mine)]
    elif kind == "barrier":
        dist.barrier()
    elif kind == "message":
        to = (root + 1) % count
        if rank == root:
            dist.send(x, to)
        elif rank == to:
            dist.recv(x, root)
            check(x, mine[root])
    else:
        objects = [None] * count
        dist.all_gather_object(objects, {"rank": rank, "i": i})
        assert objects == [{"rank": r, "i": i} for r in range(count)]
print("done", flush=True)
"""
FAULTS = ("none", "slow", "KILL", "SEGV", "raise", "exit", "shape", "INT", "TERM")


def is_there(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("fault", FAULTS)
def test_ranks_end_and_leave_nothing(tmp_path, fault, seed):
    rng, named = random.Random(f"{fault} {seed}"), set(os.listdir("/dev/shm"))
    count = rng.choice([2, 3, 4])
    victim, at = rng.randrange(count), rng.randrange(40)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "pids").mkdir()
    program = [str(tmp_path / "program.py"), str(seed), fault, str(victim), str(at), str(tmp_path / "pids")]
    done = subprocess.run(
        [sys.executable, "-m", "tandem", "run", "-n", str(count), *program], capture_output=True, text=True, timeout=200,
        start_new_session=True,
    )  # fmt: skip
    if fault in ("none", "slow"):
        assert (done.returncode, done.stdout.count("done")) == (0, count), done.stderr
    elif fault not in ("INT", "TERM"):
        assert done.returncode != 0
        assert f"rank {victim}" in done.stderr
    if fault == "raise":
        assert "planned" in done.stderr
    left = [int(path.read_text()) for path in (tmp_path / "pids").iterdir()]
    assert not [pid for pid in left if is_there(pid)]
    assert not [name for name in set(os.listdir("/dev/shm")) - named if "tandem" in name]
