"""DataLoader: the same batches for any number of workers, exact resume, and what happens when things go wrong."""

import os
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest

import tandem as td
from tandem.data import DataLoader
from tests.data import samples
from tests.data.samples import plain
from tests.processes import left_in_memory


def batches(loader) -> list:
    return [plain(batch) for batch in loader]


# -- determinism


def test_batches_are_the_same_for_any_number_of_workers():
    def epochs(**options):
        loader = DataLoader(samples.Noisy(), batch_size=4, shuffle=True, seed=3, persistent_workers=True, **options)
        found = [batches(loader), batches(loader)]
        loader.close()
        return found

    expected = epochs()
    assert expected[0] != expected[1]
    assert expected == epochs(num_workers=1)
    assert expected == epochs(num_workers=3, prefetch_factor=1)


def test_loaders_inside_of_samples():
    class Outer(td.data.Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, i):
            first = random.random()
            inner = batches(DataLoader(samples.Gaussian(), batch_size=9, seed=i))[0]
            return first, td.data.sample_random().random(), random.random(), inner[0][1][0]

    one = batches(DataLoader(Outer(), batch_size=3, seed=1))
    assert one == batches(DataLoader(Outer(), batch_size=3, seed=1))
    assert len({x for part in one[0] for x in part[1]}) == 12


def test_threads_give_the_same_batches():
    expected = batches(DataLoader(samples.OwnRandom(), batch_size=2, seed=1, shuffle=True))
    for count in (1, 3):
        loader = DataLoader(
            samples.OwnRandom(), batch_size=2, seed=1, shuffle=True, num_workers=count, worker_type="thread"
        )
        assert expected == batches(loader)


# -- resume


@pytest.mark.parametrize("data", [samples.Noisy, samples.Count])
def test_resume_in_mid_epoch_with_another_number_of_workers(data):
    shuffle = None if data is samples.Count else True
    loader = DataLoader(data(), batch_size=4, shuffle=shuffle, num_workers=2)
    batches(loader)  # epoch 0
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    assert (1, 2) == (state["epoch"], state["batches"])
    rest = [plain(b) for b in iterator]
    after = batches(loader)
    for count in (0, 1):
        other = DataLoader(data(), batch_size=4, shuffle=shuffle, num_workers=count)
        other.load_state_dict(state)
        assert rest == batches(other)
        assert after == batches(other)


def test_resume_between_epochs():
    loader = DataLoader(samples.Noisy(), batch_size=4, shuffle=True, seed=1)
    batches(loader)
    state = loader.state_dict()
    expected = batches(loader)
    other = DataLoader(samples.Noisy(), batch_size=4, shuffle=True)
    other.load_state_dict(state)
    assert expected == batches(other)
    loader.set_epoch(1)
    assert expected == batches(loader)


def test_a_loop_that_was_left_is_an_epoch():
    loader = DataLoader(range(10), batch_size=2, shuffle=True, seed=0)
    for _ in loader:
        break
    second = batches(loader)
    other = DataLoader(range(10), batch_size=2, shuffle=True, seed=0)
    batches(other)
    assert second == batches(other)


def test_states_of_other_loaders_are_refused():
    state = DataLoader(range(10), batch_size=2, seed=0).state_dict()
    with pytest.raises(ValueError, match="batch_size 2, this one has 3"):
        DataLoader(range(10), batch_size=3).load_state_dict(state)
    with pytest.raises(ValueError, match="samples 10, this one has 11"):
        DataLoader(range(11), batch_size=2).load_state_dict(state)


def test_own_collate_functions_and_arrays():
    for count in (0, 1):
        doubled, array = next(iter(DataLoader(range(4), batch_size=4, num_workers=count, collate_fn=samples.double)))
        assert [0, 2, 4, 6] == doubled.tolist()
        assert np.array_equal(np.arange(100_000), array)


def test_samples_without_batches():
    for count in (0, 2):
        found = list(DataLoader(samples.Images(3), batch_size=None, num_workers=count))
        assert [(3, 64, 64)] * 3 == [tuple(image.shape) for image, _ in found]
        assert isinstance(found[0][0], td.Tensor)


def test_a_tensor_dataset_crosses_once_and_gives_whole_batches():
    x, y = td.randn(100, 4), td.arange(100)
    for count in (0, 2):
        found = list(DataLoader(td.data.TensorDataset(x, y), batch_size=32, num_workers=count))
        assert x.tolist() == td.concat([a for a, _ in found]).tolist()
        assert y.tolist() == td.concat([b for _, b in found]).tolist()


def test_workers_can_be_forked_and_spawned():
    for context in ("fork", "spawn"):
        loader = DataLoader(range(6), batch_size=2, num_workers=1, multiprocessing_context=context)
        assert [[0, 1], [2, 3], [4, 5]] == [b.tolist() for b in loader]


def test_persistent_workers_are_kept_and_abandoned_loops_do_no_harm():
    loader = DataLoader(samples.Who(), batch_size=1, num_workers=1, persistent_workers=True)
    pids = {plain(b)[0][1][0] for b in loader}
    for b in loader:
        pids.add(plain(b)[0][1][0])
        break
    found = batches(loader)
    assert 8 == len(found)
    pids |= {b[0][1][0] for b in found}
    assert 1 == len(pids)
    pool = loader._pool
    loader.close()
    assert not pool.workers[0].process.is_alive()


def test_an_iterator_that_is_dropped_ends_its_workers():
    loader = DataLoader(samples.Who(), batch_size=1, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    processes = [w.process for w in iterator.pool.workers]
    del iterator
    loader._current = None
    assert [False, False] == [p.is_alive() for p in processes]


def test_the_loop_can_go_on_after_an_exception():
    iterator = iter(DataLoader(samples.Faulty("raise"), batch_size=2, num_workers=2))
    assert 2 == len([next(iterator), next(iterator)])
    with pytest.raises(KeyError):
        next(iterator)
    assert 3 == len(list(iterator))


@pytest.mark.parametrize("count", [0, 1])
def test_samples_that_do_not_fit_together(count):
    with pytest.raises(ValueError, match=r"collate: sample 0 is float32 \(1,\) and sample 1 is float32 \(2,\)"):
        list(DataLoader(samples.Faulty("shape"), batch_size=2, num_workers=count))


SCRIPT = """
import os, signal, sys
import tandem as td
from tests.data import samples
if __name__ == "__main__":
    iterator = iter(td.data.DataLoader(samples.Images(64), batch_size=4, num_workers=2))
    kept = next(iterator)
    print(*(w.process.pid for w in iterator.pool.workers), flush=True)
    END
"""


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "sys.exit(0)",
        "os.kill(iterator.pool.workers[0].process.pid, 9); os._exit(0)",
    ],
)
def test_nothing_is_left_when_the_main_process_ends(tmp_path, end):
    before = set(os.listdir("/dev/shm"))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("END", end))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
        timeout=240,
    )
    pids = [int(p) for p in done.stdout.split()]
    assert 2 == len(pids), done.stderr
    import time

    deadline = time.monotonic() + 300
    while any(map(_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [False, False] == [_alive(p) for p in pids]
    assert left_in_memory(before) == set()


# -- arguments


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"shuffle": True, "sampler": [0]}, "exclude each other"),
        ({"batch_sampler": [[0]], "shuffle": True}, "batch_sampler excludes"),
        ({"batch_size": None, "drop_last": True}, "drop_last means nothing"),
        ({"num_workers": -1}, "must not be negative"),
        ({"worker_type": "green"}, "worker_type='green'"),
        ({"prefetch_factor": 0}, "prefetch_factor=0"),
    ],
)
def test_arguments_that_make_no_sense(options, text):
    with pytest.raises(ValueError, match=text):
        DataLoader(range(3), **options)


def test_streams_have_no_order():
    with pytest.raises(NotImplementedError, match="own order"):
        DataLoader(samples.Count(), shuffle=True)


def test_lengths():
    assert 3 == len(DataLoader(range(7), batch_size=3))
    assert 2 == len(DataLoader(range(7), batch_size=3, drop_last=True))
    assert 7 == len(DataLoader(range(7), batch_size=None))
    assert 2 == len(DataLoader(range(7), batch_sampler=[[0, 1], [2]]))
    with pytest.raises(TypeError):
        len(DataLoader(samples.Count()))
