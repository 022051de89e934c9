"""Worker processes of loaders among other processes: forks, killed parents, loops that share workers, loaders in workers."""

import os
import subprocess
import sys
import threading
import time

import pytest

from tandem.data import DataLoader
from tandem.errors import WorkerError
from tests.data import samples
from tests.processes import in_child


def numbers(loader):
    return [x.tolist() for x in loader]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_forked_child_that_ends_leaves_the_workers_alone(persistent):
    loader = DataLoader(samples.Squares(), batch_size=2, num_workers=2, persistent_workers=persistent)
    batches = iter(loader)
    first = next(batches).tolist()
    assert in_child(lambda: None) == 0
    assert [first, *numbers(batches)] == numbers(DataLoader(samples.Squares(), batch_size=2))
    loader.close()


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_a_forked_child_cannot_go_on_with_a_loop_but_can_begin_one(kind):
    expected = numbers(DataLoader(samples.Squares(), batch_size=2))
    loader = DataLoader(samples.Squares(), batch_size=2, num_workers=1, worker_type=kind, persistent_workers=True)
    batches = iter(loader)
    next(batches)

    def work():
        with pytest.raises(WorkerError, match=r"(?s)this loop was begun by process.*fix: start a loop of its own"):
            next(batches)
        assert numbers(loader) == expected
        loader.close()

    assert in_child(work) == 0
    assert len(list(batches)) == len(expected) - 1
    loader.close()


PARENT = """
import os, sys, time
import tandem as td
from tests.data import samples
from tests.processes import in_child

if __name__ == "__main__":
    loader = td.data.DataLoader(samples.Squares(), num_workers=2, multiprocessing_context=sys.argv[1], persistent_workers=True)
    batches = iter(loader)
    next(batches)
    helper = os.fork()  # holds everything open that the parent had
    if helper == 0:
        os.close(1)
        time.sleep(60)
        os._exit(0)
    print(helper, *(w.process.pid for w in loader._pool.workers), flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_end_when_their_process_is_killed(tmp_path, method):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = subprocess.Popen([sys.executable, str(script), method], env=environment, stdout=subprocess.PIPE, text=True)
    helper, *workers = map(int, parent.stdout.readline().split())
    parent.kill()
    parent.wait()
    try:
        assert len(workers) == 2
        deadline = time.monotonic() + 300
        while any(is_running(pid) for pid in workers):
            assert time.monotonic() < deadline, "workers are left"
            time.sleep(0.05)
    finally:
        os.kill(helper, 9)


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone, before or after the file was opened
        return False


@pytest.mark.parametrize(
    "data", [samples.Squares(), samples.Count(9), samples.Sharded()], ids=lambda d: type(d).__name__
)
def test_two_loops_share_the_workers_of_a_loader(data):
    def pairs(loader):
        """Two loops at once, the second one slower."""
        first, second, found = iter(loader), iter(loader), ([], [])
        for k in range(40):
            for loop, out in ((first, found[0]), (second, found[1])):
                if loop is first or k % 2:
                    out += [str(x) for x in [next(loop, None)] if x is not None]
        return found

    kept = DataLoader(data, batch_size=2, num_workers=2, persistent_workers=True, seed=1)
    apart = DataLoader(data, batch_size=2, num_workers=2, seed=1)
    assert pairs(kept) == pairs(apart)
    kept.close()


def test_two_threads_share_the_workers_of_a_loader():
    loader = DataLoader(samples.Squares(), batch_size=2, num_workers=2, persistent_workers=True)
    expected, found = numbers(DataLoader(samples.Squares(), batch_size=2)), []
    loops = [iter(loader) for _ in range(4)]
    threads = [threading.Thread(target=lambda loop=loop: found.append(numbers(loop)), daemon=True) for loop in loops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    assert found == [expected] * 4
    loader.close()


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"num_workers": 2, "worker_type": "thread"}], ids=str)
@pytest.mark.parametrize(
    ("data", "extra", "text"),
    [
        (samples.Stops(), {"batch_size": 2}, r"Stops.__getitem__\(3\) raised StopIteration"),
        (samples.Stops(), {"batch_size": None}, r"Stops.__getitem__\(3\) raised StopIteration"),
        (samples.StopsInBatches(), {"batch_size": 2}, r"StopsInBatches.__getitems__\(\[2, 3\]\) raised StopIteration"),
        (samples.Squares(), {"collate_fn": samples.stops}, r"stops, the collate_fn, raised StopIteration"),
        (samples.Count(5), {"collate_fn": samples.stops}, r"stops, the collate_fn, raised StopIteration"),
        (samples.StopsAtOnce(), {}, r"StopsAtOnce.__iter__\(\) raised StopIteration"),
    ],
    ids=["sample", "single", "batch", "collate", "stream", "iter"],
)
def test_stop_iteration_in_a_dataset_is_an_error(options, data, extra, text):
    with pytest.raises(WorkerError, match=text):
        list(DataLoader(data, **extra, **options))


def test_stop_iteration_as_a_worker_starts_is_an_error():
    with pytest.raises(WorkerError, match="worker_init_fn raised StopIteration"):
        list(DataLoader(samples.Squares(), num_workers=1, worker_init_fn=samples.stops))


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_loaders_with_workers_in_workers(method):
    loader = DataLoader(samples.Nested(method), batch_size=None, num_workers=2, multiprocessing_context=method)
    assert [x.tolist() for x in loader] == [[0, 1, 4, 9]] * 2
