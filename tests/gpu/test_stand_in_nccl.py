"""Collectives of CUDA tensors on a stand-in for the device and for NCCL, as far as they need no kernels."""

import shutil

import pytest

from tandem.distributed import gloo, mpi
from tests import cuda_stand_in

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

HEAD = """
import ctypes, os, sys
from tandem.codegen.cuda import nvrtc
nvrtc.architectures = lambda: (90,)
nvrtc.version = lambda: (13, 0)
nvrtc.compile_source = lambda source, *rest: b"nothing"
import tandem as td
from tests.gpu import nccl_checks
library = ctypes.CDLL(os.environ["TANDEM_CUDA_DRIVER"])
def graphs():
    found = (ctypes.c_longlong * 8)()
    library.stand_in_counts(found)
    return found[1]
"""


def run(script: str, tmp_path, **more) -> str:
    more = {"TANDEM_CACHE_DIR": str(tmp_path), "TANDEM_COMPILE_WORKERS": "0", "TANDEM_LAUNCHER": "0", **more}
    return cuda_stand_in.run(HEAD + script, **more)


CHECKS = """
names = [name for name, (_, kernels, on) in nccl_checks.CHECKS.items() if not kernels and (engine, n) in on]
for name, result in nccl_checks.run_checks(names, engine, n).items():
    float(result)
"""


def test_every_collective_between_threads(tmp_path):
    run("engine, n = 'threads', 2" + CHECKS + "assert graphs() > 0", tmp_path)


def test_every_collective_between_processes(tmp_path):
    run("engine, n = 'shared_memory', 3" + CHECKS, tmp_path)


def test_where_nccl_refuses_all_go_through_host_memory(tmp_path):
    run("engine, n = 'shared_memory', 2" + CHECKS, tmp_path, STAND_IN_NCCL_REFUSES="1")


@pytest.mark.slow  # the others have a few seconds to write down what they were told
def test_a_rank_that_dies_in_a_collective_is_named_by_the_others(tmp_path):
    text = run(
        """
try:
    td.distributed.spawn(nccl_checks.dies_in_nccl, 3, timeout=60)
except td.DistributedError as error:
    print(error)
""",
        tmp_path, STAND_IN_NCCL_DIES="1:2",
    )  # fmt: skip
    assert "rank 1" in text and ("SIGKILL" in text or "-9" in text)
    for rank in (0, 2):
        assert (tmp_path / f"told.{rank}").read_text().startswith("rank 1 failed (process"), text


several_hosts = pytest.mark.skipif(
    mpi.find_library() is None and gloo.find_plugin() is None, reason="needs MPI or Gloo"
)


@several_hosts
def test_every_collective_between_hosts(tmp_path):
    text = run("engine, n = 'shared_memory', 3" + CHECKS, tmp_path, TANDEM_HOST="host{rank}")
    assert "through host memory" not in text


@several_hosts
def test_where_nccl_refuses_between_hosts_all_go_through_host_memory(tmp_path):
    run("engine, n = 'shared_memory', 2" + CHECKS, tmp_path, TANDEM_HOST="host{rank}", STAND_IN_NCCL_REFUSES="1")


@several_hosts
@pytest.mark.slow
def test_a_rank_that_dies_in_a_collective_is_named_by_other_hosts(tmp_path):
    run(
        """
try:
    td.distributed.spawn(nccl_checks.dies_in_nccl, 3, timeout=60)
except td.DistributedError as error:
    print(error)
""",
        tmp_path, TANDEM_HOST="host{rank}", STAND_IN_NCCL_DIES="1:2",
    )  # fmt: skip
    for rank in (0, 2):
        assert (tmp_path / f"told.{rank}").read_text().startswith("rank 1 failed (its process")
