"""DataLoader: the same batches for any number of workers, exact resume, and what happens when things go wrong."""

import os
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest

import tandem as td
from tandem.data import DataLoader, seeding
from tests.data import samples


def plain(value):
    """A batch as nested Python values."""
    if isinstance(value, td.Tensor):
        return (str(value.dtype), value.tolist())
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


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


def test_normal_numbers_kept_in_hand_stay_with_their_sample():
    whole = batches(DataLoader(samples.Gaussian(), batch_size=9, seed=3))[0]
    np.random.seed(0)
    np.random.randn()  # the program's own, which has a second one in hand now
    random.gauss(0, 1)
    single = batches(DataLoader(samples.Gaussian(), batch_size=1, seed=3))
    assert [part[1] for part in whole] == [[x for batch in single for x in batch[k][1]] for k in range(3)]
    assert len(set(whole[0][1])) == len(set(whole[1][1])) == 9
    assert batches(DataLoader(samples.Gaussian(), batch_size=1, seed=3, num_workers=2)) == single


def test_generators_that_are_built_otherwise_are_set_by_their_own_functions(monkeypatch):
    expected = batches(DataLoader(samples.Gaussian(), batch_size=9, seed=3))[0]
    monkeypatch.setattr(seeding, "_python_offset", lambda generator: 0)
    monkeypatch.setattr(seeding, "_numpy_address", lambda numpy, bits: 0)
    monkeypatch.setattr(seeding, "_seeds", None)
    random.seed(5)
    state = random.getstate()
    found = batches(DataLoader(samples.Gaussian(), batch_size=9, seed=3))[0]
    assert found[0] == expected[0]
    assert found == batches(DataLoader(samples.Gaussian(), batch_size=9, seed=3))[0]
    assert random.getstate() == state


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


def test_the_order_follows_manual_seed_and_loading_disturbs_no_generator():
    def order(seed):
        td.manual_seed(seed)
        return batches(DataLoader(samples.Noisy(), batch_size=5, shuffle=True))

    assert order(1) == order(1) != order(2)
    loader = DataLoader(samples.Noisy(), batch_size=5, seed=0)
    td.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    expected = td.rand(1).tolist(), random.random(), np.random.rand()
    td.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    batches(loader)
    assert expected == (td.rand(1).tolist(), random.random(), np.random.rand())


def test_streams_come_once_and_in_order_for_any_number_of_workers():
    expected = batches(DataLoader(samples.Count(), batch_size=3, seed=7))
    assert list(range(17)) == [i for batch in expected for i in batch[0][1]]
    for count in (1, 2):
        assert expected == batches(DataLoader(samples.Count(), batch_size=3, seed=7, num_workers=count))
    assert 5 == len(batches(DataLoader(samples.Count(), batch_size=3, drop_last=True, num_workers=2)))
    mapped = DataLoader(samples.Count().map(samples.first_column), batch_size=4, num_workers=2)
    assert [[0, 1, 2, 3], [4, 5, 6, 7]] == [b.tolist() for b in mapped][:2]


def test_sharded_streams_are_dealt_out_in_turn():
    loader = DataLoader(samples.Sharded(), batch_size=2, num_workers=2, seed=0)
    expected = [b.tolist() for b in loader]
    assert [[0, 2], [1, 3], [4, 6], [5, 7]] == expected[:4]
    assert set(range(20)) == {i for b in expected for i in b}
    iterator = iter(loader)
    next(iterator), next(iterator), next(iterator)
    state = loader.state_dict()
    iterator.close()
    other = DataLoader(samples.Sharded(), batch_size=2, num_workers=2)
    other.load_state_dict(state)
    assert expected[3:] == [b.tolist() for b in other]
    with pytest.raises(ValueError, match="needs as many"):
        DataLoader(samples.Sharded(), batch_size=2, num_workers=1).load_state_dict(state)


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


# -- workers


def test_workers_know_who_they_are():
    found = [plain(b) for b in DataLoader(samples.Who(), batch_size=1, num_workers=2)]
    assert os.getpid() not in [b[0][1][0] for b in found]
    assert {0, 1} == {b[1][1][0] for b in found}
    assert [-1] == plain(next(iter(DataLoader(samples.Who()))))[1][1]
    assert {0, 1} == {
        i for b in DataLoader(samples.Marked(), num_workers=2, worker_init_fn=samples.mark_worker) for i in b.tolist()
    }


def test_tensors_of_a_batch_are_on_shared_memory_that_is_used_again():
    loader = DataLoader(samples.Images(48), batch_size=4, num_workers=1)
    iterator = iter(loader)
    (worker,) = iterator.pool.workers
    for images, _ in iterator:
        assert images.is_shared()
        assert max(worker.pieces) < 10  # numbers rise with each new piece; 12 batches would make 24


def test_batches_that_are_kept_stay_as_they_were():
    data = samples.Images(40)
    kept = list(DataLoader(data, batch_size=2, num_workers=2))
    for i, (images, numbers) in enumerate(kept):
        assert np.array_equal(data.images[2 * i : 2 * i + 2], images.numpy())
        assert [2 * i, 2 * i + 1] == numbers.tolist()


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


# -- faults


@pytest.mark.parametrize("count", [0, 1])
def test_exceptions_arrive_with_their_traceback(count):
    loader = DataLoader(samples.Faulty("raise"), batch_size=2, num_workers=count)
    with pytest.raises(KeyError, match="no such sample") as caught:
        list(loader)
    if count:
        assert "samples.py" in str(caught.value.__cause__)
        assert "__getitem__" in str(caught.value.__cause__)
        assert "worker 0 of a DataLoader" in caught.value.__notes__[0]


def test_the_loop_can_go_on_after_an_exception():
    iterator = iter(DataLoader(samples.Faulty("raise"), batch_size=2, num_workers=2))
    assert 2 == len([next(iterator), next(iterator)])
    with pytest.raises(KeyError):
        next(iterator)
    assert 3 == len(list(iterator))


def test_exceptions_that_cannot_be_sent_become_text():
    with pytest.raises(td.WorkerError, match=r"Unpicklable: .*only here"):
        list(DataLoader(samples.Faulty("unpicklable"), batch_size=2, num_workers=1))


@pytest.mark.parametrize(
    ("what", "text"), [("kill", r"was killed by signal 9 \(SIGKILL\)"), ("exit", "ended with exit code 3")]
)
def test_a_dead_worker_is_reported(what, text):
    loader = DataLoader(samples.Faulty(what), batch_size=2, num_workers=2)
    with pytest.raises(td.WorkerError, match=rf"worker \d \(process \d+\) {text}"):
        list(loader)
    assert 6 == len(list(DataLoader(samples.Faulty(""), batch_size=2, num_workers=2)))


def test_a_worker_killed_between_batches_is_reported():
    iterator = iter(DataLoader(range(1000), batch_size=1, num_workers=2))
    next(iterator)
    iterator.pool.workers[1].process.kill()
    with pytest.raises(td.WorkerError, match="SIGKILL"):
        list(iterator)


def test_timeout():
    loader = DataLoader(samples.Faulty("hang"), batch_size=2, num_workers=1, timeout=3)
    with pytest.raises(td.WorkerError, match=r"no batch came within timeout=3 s; workers \[0\]"):
        list(loader)


def test_what_cannot_be_sent_to_workers_is_said():
    class Local(td.data.Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, i):
            return i

    with pytest.raises(TypeError, match="cannot be sent to worker processes"):
        list(DataLoader(Local(), num_workers=1))
    with pytest.raises(ValueError, match="not here"):
        list(DataLoader(samples.Refuses(), num_workers=1))


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
        timeout=60,
    )
    pids = [int(p) for p in done.stdout.split()]
    assert 2 == len(pids), done.stderr
    import time

    deadline = time.monotonic() + 10
    while any(map(_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [False, False] == [_alive(p) for p in pids]
    assert set() == set(os.listdir("/dev/shm")) - before


def test_a_program_without_main_guard_whose_workers_import_it_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import tandem as td\n"
        "for batch in td.data.DataLoader(range(4), num_workers=1, multiprocessing_context='spawn'):\n    print(batch)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
        timeout=60,
    )
    assert done.returncode
    assert 'if __name__ == "__main__"' in done.stderr


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
