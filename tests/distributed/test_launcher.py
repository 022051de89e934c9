"""tandem run."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.distributed.ranks import run


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
        line.append(os.environ["MASTER_PORT"])
        os.write(1, (" ".join(map(str, line)) + "\\n").encode())  # at once, whatever the other rank prints
        td.distributed.destroy_process_group()
        """,
        "--nproc_per_node=2",
    )
    assert done.returncode == 0, done.stderr
    lines = sorted(line.split() for line in done.stdout.splitlines())
    assert [line[:5] for line in lines] == [["0", "1.0", "0", "2", "2"], ["1", "1.0", "1", "2", "2"]]
    assert lines[0][6] == lines[1][6]
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
            assert time.monotonic() - began < 200  # and not the half hour that collectives wait
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
    _, errors = launcher.communicate(timeout=300)
    assert launcher.returncode == 130, errors
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert "Traceback" not in errors


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_launcher_that_is_told_twice_to_end_kills_ranks_that_do_not(tmp_path, number, status):
    path = tmp_path / "train.py"
    path.write_text(
        "import os, signal, time\n"
        "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)\n"
        "os.write(1, b'%d\\n' % os.getpid())\n"
        "time.sleep(60)\n"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-m", "tandem", "run", "-n", "2", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    pids = [int(launcher.stdout.readline()) for _ in range(2)]
    for _ in range(2):
        os.kill(launcher.pid, number)
        time.sleep(0.3)  # signals that wait are one
    _, errors = launcher.communicate(timeout=300)
    assert (launcher.returncode, "Traceback" in errors) == (status, False), errors
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_rank_whose_launcher_has_ended_before_it_began_ends(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("print('began')")
    command = [
        sys.executable,
        "-m",
        "tandem.distributed.worker",
        "1",
        str(path),
    ]  # this process is no child of the first
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "")
