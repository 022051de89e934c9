"""Environments of launchers."""

import os
import socket
import subprocess
import sys

import pytest

import tandem as td
from tandem import distributed as dist


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
    outputs = [p.communicate(timeout=300) for p in started]
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
