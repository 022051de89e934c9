"""Ranks that Ray starts."""

import importlib.util
import subprocess
import sys

import pytest

import tandem as td
from tandem import distributed as dist

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(td.UnsupportedError, match=r"Ray, which is not installed(?s:.)*pip install"):
        dist.launch(print, workers=2)
    with pytest.raises(td.ValueRangeError, match="workers=0"):
        dist.launch(print, workers=0)


PROGRAM = """
import os, sys
import tandem as td
dist = td.distributed

def work(fails):
    x = td.ones(3) * (dist.get_rank() + 1)
    dist.all_reduce(x)
    if dist.get_rank() == fails:
        raise KeyError("lost")
    if dist.get_rank() == fails - 10:
        os._exit(3)
    dist.barrier()
    return x.tolist(), dist.get_backend(), int(os.environ["LOCAL_RANK"])

if __name__ == "__main__":
    import ray
    ray.init(num_cpus=3, include_dashboard=False, configure_logging=False, log_to_driver=False)
    print(dist.launch(work, 2, (-1,)))
    for fails in (1, 11):
        try:
            dist.launch(work, 2, (fails,))
        except td.DistributedError as error:
            print(str(error).replace("\\n", " | "))
"""


@needs_ray
@pytest.mark.slow
def test_ranks_on_ray_meet_and_failures_are_named(tmp_path):
    path = tmp_path / "driver.py"
    path.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "(raylet)" not in line]  # which speaks of dead workers, too
    assert lines[0] == str([([3.0, 3.0, 3.0], "shared_memory", 0), ([3.0, 3.0, 3.0], "shared_memory", 1)])
    assert "rank 1 of 2 failed" in lines[1] and "KeyError: 'lost'" in lines[1]
    assert "rank 1 of 2 failed" in lines[2] and "its process has ended" in lines[2]


@needs_ray
@pytest.mark.slow
def test_tandem_run_ray(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(
        "import sys, tandem as td\n"
        "td.distributed.init_process_group()\n"
        "x = td.ones(2)\n"
        "td.distributed.all_reduce(x)\n"
        f"open(r'{tmp_path}/' + str(td.distributed.get_rank()), 'w').write(str(x.tolist()) + sys.argv[1])\n"
        "td.distributed.destroy_process_group()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "tandem", "run", "--ray", "-n", "2", str(path), "hello"], capture_output=True, text=True,
        timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / str(r)).read_text() for r in range(2)] == ["[2.0, 2.0]hello"] * 2
