"""What workers do: samples of maps and of streams."""

import os

import pytest

from tandem.data import DataLoader
from tests.data import samples
from tests.data.samples import plain


def batches(loader) -> list:
    return [plain(batch) for batch in loader]


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


# -- workers


def test_workers_know_who_they_are():
    found = [plain(b) for b in DataLoader(samples.Who(), batch_size=1, num_workers=2)]
    assert os.getpid() not in [b[0][1][0] for b in found]
    assert {0, 1} == {b[1][1][0] for b in found}
    assert [-1] == plain(next(iter(DataLoader(samples.Who()))))[1][1]
    assert {0, 1} == {
        i for b in DataLoader(samples.Marked(), num_workers=2, worker_init_fn=samples.mark_worker) for i in b.tolist()
    }
