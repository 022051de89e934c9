"""Every operator that check_op checks, on sharded tensors; a sample of each kind is in test_call.py."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]


@pytest.mark.slow
def test_every_operator_gives_on_every_mesh_what_one_rank_gives():
    command = [sys.executable, "tools/sharded_check.py", "--most", "4", "-n", "0", "--tb=line"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout[-4000:]
