"""Ranks over a network: the same results as on one host, by MPI and by Gloo, on hosts played by processes with other names and by
network namespaces."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tandem import distributed as dist
from tandem.distributed import gloo, mpi
from tests.processes import left_in_memory

networks = pytest.mark.parametrize(
    "network",
    [
        pytest.param("mpi", marks=pytest.mark.skipif(mpi.find_library() is None, reason="there is no MPI library")),
        pytest.param("gloo", marks=pytest.mark.skipif(gloo.find_plugin() is None, reason="built without Gloo")),
    ],
)
slow = pytest.mark.slow


PROGRAM = """
import os, sys, time
import numpy as np
import tandem as td
dist = td.distributed
"""


def start(tmp_path, network, program, n, hosts=None, flags=(), **more):
    """`tandem run` on n ranks, each of which takes itself to be on a host of its own, unless `hosts` names them."""
    path = tmp_path / "train.py"
    names = hosts or [f"host{r}" for r in range(n)]
    path.write_text(
        "import os\n"
        f"os.environ['TANDEM_HOST'] = {names}[int(os.environ['RANK'])]\n" + PROGRAM + textwrap.dedent(program)
    )
    return subprocess.Popen(
        [sys.executable, "-m", "tandem", "run", "-n", str(n), *flags, str(path)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "NETWORK": network}, **more,
    )  # fmt: skip


def run(*args, **kwargs):
    """And nothing stays in /dev/shm."""
    before = set(os.listdir("/dev/shm"))
    process = start(*args, **kwargs)
    out, errors = process.communicate(timeout=300)
    assert not {name for name in left_in_memory(before) if "mpi" in name}
    return process.returncode, out, errors


EVERYTHING = """
def work():
    r, n = dist.get_rank(), dist.get_world_size()
    made = []
    dtypes = [td.float32, td.bfloat16, td.float16, td.float64, td.int64, td.int8, td.uint16, td.complex64]
    for count in (3, 20_001, 1_500_000):
        for dtype in dtypes if count < 1_000_000 else dtypes[:2]:
            x = (td.arange(count * n) % 7 + r + 1).to(dtype) / (3 if dtype.is_floating_point else 1)
            x = x.to(dtype)
            total, copy, rooted = x.clone(), x.clone(), x.clone()
            dist.all_reduce(total)
            dist.broadcast(copy, src=n - 1)
            dist.reduce(rooted, dst=1)
            every = dist.functional.all_gather(x)
            mine = dist.functional.reduce_scatter(x)
            swapped = dist.functional.all_to_all(x)
            got = td.zeros(count * n, dtype=dtype)
            pending = dist.isend(x, (r + 1) % n), dist.irecv(got, (r - 1) % n)
            for p in pending:
                p.wait()
            made += [total, copy, rooted, every, mine, swapped, got]
    for op in ("min", "max", "product", "avg"):
        y = td.arange(4000.0) % 5 + r + 1
        dist.all_reduce(y, op)
        made.append(y)
    lists = [td.zeros(r + 1 + k) for k in range(n)]  # uneven parts
    dist.all_to_all(lists, [td.full((k + 1 + r,), float(10 * r + k)) for k in range(n)])
    parts = [td.zeros(k + 1) for k in range(n)]
    dist.all_gather(parts, td.full((r + 1,), float(r)))
    several = [td.full((k + 1,), float(r)) for k in range(5)] + [td.ones(700_000)]
    dist.all_reduce_coalesced(several)
    out = td.zeros(r + 2)
    dist.reduce_scatter(out, [td.ones(k + 2) * (r + 1) for k in range(n)])
    made += [*lists, *parts, *several, out]
    group = dist.new_group([0, 1])
    z = td.ones(5000) * (r + 1)
    if r < 2:
        dist.all_reduce(z, group=group)
    made.append(z)
    handles = [dist.all_reduce(made[0], async_op=True), dist.all_reduce(made[1], async_op=True)]
    for h in handles:
        h.wait()
    w = td.ones(6, requires_grad=True)
    (dist.functional.all_reduce(w * (r + 1)) ** 2).sum().backward()
    made.append(w.grad)

    @td.compile
    def step(x):
        return dist.functional.all_reduce(x * 2) + 1

    made.append(step(td.ones(3000) * r))
    made.append(td.tensor([len(s) for s in dist_objects(r, n)]))
    return [t.detach().to(td.complex128 if t.dtype.is_complex else td.float64).numpy() for t in made]

def dist_objects(r, n):
    got = [None] * n
    dist.all_gather_object(got, "x" * (r + 1))
    return got
"""


def reference(n):
    scope: dict = {}
    exec(PROGRAM + EVERYTHING, scope)
    return dist.spawn(scope["work"], n, engine="threads")


@slow
@networks
@pytest.mark.parametrize("n, hosts", [(2, None), (3, ["a", "a", "b"])])
def test_every_collective_gives_the_bits_of_one_host(tmp_path, network, n, hosts):
    code, out, errors = run(
        tmp_path, network, EVERYTHING + f"\ndist.init_process_group('{network}')\nmade = work()\n"
        f"np.savez(r'{tmp_path}/' + str(dist.get_rank()), *made)\n"
        "print(dist.get_backend(), len(made))\ndist.destroy_process_group()\n", n, hosts,
    )  # fmt: skip
    assert code == 0, errors
    assert out.split()[0] == network
    for rank, expected in enumerate(reference(n)):
        with np.load(tmp_path / f"{rank}.npz") as theirs:
            assert len(theirs.files) == len(expected)
            for name, value in zip(theirs.files, expected, strict=True):
                np.testing.assert_array_equal(value, theirs[name], err_msg=f"rank {rank} {name}")


@slow
@networks
def test_data_parallel_training_is_what_it_is_on_one_host(tmp_path, network):
    code, out, errors = run(
        tmp_path,
        network,
        """
        dist.init_process_group(os.environ["NETWORK"])
        td.manual_seed(1)
        model = dist.data_parallel(td.nn.Linear(4, 2))
        optimizer = td.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(td.ones(5, 4) * (dist.get_rank() + step)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        os.write(1, f"{dist.get_backend()} {float(model.weight.sum())!r}\\n".encode())
        """,
        2,
    )
    assert code == 0, errors
    lines = out.splitlines()
    assert len(lines) == 2 and lines[0] == lines[1] and lines[0].startswith(f"{network} ")


@slow
@networks
def test_collectives_under_way_give_the_bits_of_those_that_are_waited_for(tmp_path, network):
    code, out, errors = run(
        tmp_path, network,
        """
        dist.init_process_group(os.environ["NETWORK"])
        def train(shard):
            td.manual_seed(0)
            model = td.nn.Sequential(*(td.nn.Linear(64, 64) for _ in range(4)))
            if shard:
                for layer in model:
                    dist.fully_shard(layer)
            else:
                dist.data_parallel(model)
            optimizer = td.optim.Adam(model.parameters(), lr=0.01)
            @td.compile
            def step(x):
                loss = (td.tanh(model(x)) ** 2).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                return loss
            losses = [step(td.sin(td.arange(5.0 * 64).reshape(5, 64) + dist.get_rank() + i)).item() for i in range(4)]
            begun = sum(repr(s).startswith("<begin") for s in step.graph().schedule.steps)
            return losses, [p.detach().tolist() for p in model.parameters()], begun
        for shard in (False, True):
            *early, begun = train(shard)
            with td.switches(SKIP="prefetch_gathers,overlap_collectives"):
                *late, none = train(shard)
            assert early == late and begun > 1 and none == 0, (shard, begun, none)
        print("alike", flush=True)
        """, 2,
    )  # fmt: skip
    assert code == 0, errors
    assert out.count("alike") == 2


@slow
@networks
def test_a_rank_that_dies_while_collectives_are_under_way_is_named(tmp_path, network):
    code, _, errors = run(
        tmp_path, network,
        """
        dist.init_process_group(os.environ["NETWORK"])
        model = td.nn.Sequential(*(td.nn.Linear(64, 64) for _ in range(4)))
        for layer in model:
            dist.fully_shard(layer)
        @td.compile
        def step(x):
            loss = (model(x) ** 2).mean()
            loss.backward()
            return loss
        for i in range(1000):
            step(td.ones(5, 64)).item()
            if i == 20 and dist.get_rank() == 1:
                os.kill(os.getpid(), 9)
        """, 2,
    )  # fmt: skip
    assert code != 0 and "rank 1" in errors, errors


@slow
@networks
def test_ranks_that_disagree_and_one_that_leaves_are_shown(tmp_path, network):
    code, out, errors = run(
        tmp_path,
        network,
        """
        dist.init_process_group(os.environ["NETWORK"])
        r = dist.get_rank()
        try:
            dist.all_reduce(td.ones(3)) if r else dist.all_reduce(td.ones(4))
        except td.DistributedError as error:
            os.write(1, f"[{error}]\\n".encode())
        try:
            dist.send(td.ones(2), 1) if r == 0 else dist.recv(td.ones(3), 0)
        except td.DistributedError as error:
            os.write(1, f"[{error}]\\n".encode())
        dist.barrier()
        if r == 0:
            dist.barrier()
        """,
        2,
    )
    assert out.count("ranks do not agree on collective number 1") == 2
    assert out.count("rank 0: all_reduce(sum) of float32 (4,) at train.py:") == 2
    assert "a message is not what is expected" in out
    assert code == 1 and "rank 1 has left the group, and barrier at train.py" in errors


@slow
@networks
def test_a_killed_rank_and_a_stuck_one_are_named(tmp_path, network):
    code, out, errors = run(
        tmp_path,
        network,
        """
        import signal
        dist.init_process_group(os.environ["NETWORK"])
        dist.barrier()
        if dist.get_rank() == 1:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.monotonic()
        try:
            dist.all_reduce(td.ones(3000))
        except td.DistributedError as error:
            print(f"{time.monotonic() - began:.2f}", error)
            raise
        """,
        3,
    )
    assert code == 128 + signal.SIGKILL
    assert out.count("rank 1 failed (its process has ended") == 2, errors
    assert out.count("all_reduce(sum) of float32 (3000,) at train.py") == 2
    code, out, errors = run(
        tmp_path,
        network,
        """
        dist.init_process_group(os.environ["NETWORK"])
        group = dist.new_group([0, 1], timeout=5)
        dist.barrier()
        dist.barrier(group)
        if dist.get_rank() == 1:
            time.sleep(60)  # stuck
        dist.all_reduce(td.ones(3), group=group)
        """,
        2,
    )
    assert code != 0
    assert "waited 5 s in all_reduce(sum) of float32 (3,) at train.py" in errors
    assert f"rank 1: is at {tmp_path}/train.py:" in errors
    assert "its latest collective was number 1, barrier at train.py" in errors


@slow
@networks
def test_several_launchers_restart_and_end_together(tmp_path, network):
    """Two launchers, as on two hosts; the first attempt fails on the second one."""
    path = tmp_path / "train.py"
    path.write_text(
        PROGRAM
        + textwrap.dedent("""
        dist.init_process_group(os.environ["NETWORK"])
        if dist.get_rank() == 3 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            raise ValueError("no data")
        x = td.ones(2)
        dist.all_reduce(x)
        names = "GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
        line = [dist.get_rank(), x.tolist(), *[os.environ[n] for n in names], dist.get_backend()]
        os.write(1, (str(line) + "\\n").encode())
        """)
    )
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    launchers = [
        subprocess.Popen(
            [sys.executable, "-m", "tandem", "run", "--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}", "-n", "2",
             "--max-restarts", "1", "--node-rank", str(host), str(path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "NETWORK": network, "TANDEM_HOST": f"host{host}"},
        )
        for host in range(2)
    ]  # fmt: skip
    outputs = [p.communicate(timeout=300) for p in launchers]
    assert [p.returncode for p in launchers] == [0, 0], outputs
    lines = sorted("".join(out for out, _ in outputs).splitlines())
    assert lines == [str([r, [4.0, 4.0], str(r // 2), str(r % 2), "2", network]) for r in range(4)]
    assert "ValueError: no data" in outputs[1][1]


@slow
@networks
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and `ip`")
def test_hosts_that_share_a_network_alone(tmp_path, network):
    """Each host a network namespace with an address of its own."""
    path = tmp_path / "train.py"
    path.write_text(
        PROGRAM
        + textwrap.dedent("""
        dist.init_process_group(os.environ["NETWORK"])
        x = td.arange(200_000.0) + dist.get_rank()
        dist.all_reduce(x)
        os.write(1, f"{dist.get_backend()} {float(x[1])} {float(x[-1])}\\n".encode())
        """)
    )
    tag = os.getpid() % 10000
    names = [f"td{tag}{c}" for c in "ab"]

    def ip(*args):
        subprocess.run(["ip", *args], check=True, capture_output=True)

    try:
        try:
            for name in names:
                ip("netns", "add", name)
            ip(
                "link",
                "add",
                f"{names[0]}v",
                "netns",
                names[0],
                "type",
                "veth",
                "peer",
                f"{names[1]}v",
                "netns",
                names[1],
            )
            for i, name in enumerate(names):
                ip("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", f"{name}v")
                ip("-n", name, "link", "set", f"{name}v", "up")
                ip("-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr!r}")
        launchers = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, sys.executable, "-m", "tandem", "run", "--nnodes", "2", "-n", "1",
                 "--master-addr", "10.77.0.1", "--master-port", "29411", str(path)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "NETWORK": network, "TANDEM_HOST": name},
            )
            for name in names
        ]  # fmt: skip
        outputs = [p.communicate(timeout=300) for p in launchers]
        assert [p.returncode for p in launchers] == [0, 0], outputs
        assert [out for out, _ in outputs] == [f"{network} 3.0 399999.0\n"] * 2
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
