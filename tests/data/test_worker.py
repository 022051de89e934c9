"""Workers that fail, die or are late."""

import pytest

import tandem as td
from tandem.data import DataLoader
from tests.data import samples

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
