"""Datasets, samplers, collation, seeds."""

import collections

import numpy as np
import pytest

import tandem as td
from tandem.data import seeding

Point = collections.namedtuple("Point", ("x", "y"))


def test_collate_keeps_the_structure_of_samples():
    batch = td.data.default_collate(
        [{"p": Point(1, 2.5), "s": "a", "n": None}, {"p": Point(3, 4.5), "s": "b", "n": None}]
    )
    assert isinstance(batch["p"], Point)
    assert [1, 3] == batch["p"].x.tolist()
    assert td.float64 is batch["p"].y.dtype
    assert ("a", "b") == batch["s"]
    assert batch["n"] is None


def test_collate_takes_arrays_and_scalars_of_numpy():
    batch = td.data.default_collate(
        [(np.ones(2, np.float32)[::-1], np.int16(3), True), (np.zeros(2, np.float32), np.int16(4), False)]
    )
    assert [[1.0, 1.0], [0.0, 0.0]] == batch[0].tolist()
    assert (td.float32, td.int16, td.bool) == tuple(t.dtype for t in batch)


@pytest.mark.parametrize(
    ("samples", "error", "text"),
    [
        ([td.zeros(2), td.zeros(3)], ValueError, r"sample 0 is float32 \(2,\) and sample 1 is float32 \(3,\)"),
        ([td.zeros(2), td.zeros(2).int()], ValueError, "sample 1 is int"),
        ([object()], TypeError, "contain a object"),
        ([(1, 2), (1,)], ValueError, r"\[1, 2\] elements"),
        ([np.array(["a"])], TypeError, "cannot be stacked"),
    ],
)
def test_samples_that_cannot_be_stacked(samples, error, text):
    with pytest.raises(error, match=text):
        td.data.default_collate(samples)


def test_views_are_stacked_by_their_elements():
    base = td.arange(12).reshape(3, 4)
    assert [[0, 4, 8], [1, 5, 9]] == td.data.default_collate([base[:, 0], base[:, 1]]).tolist()
    data = td.data.TensorDataset(base.T)
    assert [[3, 7, 11], [0, 4, 8]] == data.__getitems__([3, 0])[0].tolist()
    assert [[3, 7, 11]] == data.__getitems__([-1])[0].tolist()
    with pytest.raises(IndexError, match="index 4 is out of range for 4 rows"):
        data.__getitems__([4])


def test_batches_do_not_share_memory_with_the_dataset():
    x = td.zeros(4, 2)
    (batch,) = next(iter(td.data.DataLoader(td.data.TensorDataset(x), batch_size=4)))
    batch += 1
    assert 0.0 == float(x.sum())


def test_tensor_dataset_checks_its_tensors():
    with pytest.raises(ValueError, match=r"\(2, 3\), \(3,\); they need the same first size"):
        td.data.TensorDataset(td.zeros(2, 3), td.zeros(3))
    with pytest.raises(ValueError, match="no tensors"):
        td.data.TensorDataset()


def test_datasets_of_datasets():
    data = td.data.TensorDataset(td.arange(10)) + td.data.TensorDataset(td.arange(10, 15))
    assert 15 == len(data)
    assert 12 == int(data[12][0])
    assert 14 == int(data[-1][0])
    with pytest.raises(IndexError, match="index 15 is out of range for 15"):
        data[15]
    assert [0, 2, 4] == [int(x) for (x,) in td.data.Subset(data, [0, 2, 4])]
    assert [1, 4] == [b.tolist()[0] for b in td.data.DataLoader(td.data.MapDataset([1, 2], lambda x: x * x))]


def test_a_subset_of_tensors_gives_whole_batches():
    data = td.data.Subset(td.data.TensorDataset(td.arange(10)), [9, 7, 5, 3])
    assert [[9, 7, 5], [3]] == [x.tolist() for (x,) in td.data.DataLoader(data, batch_size=3)]


def test_random_split_covers_everything_once():
    parts = td.data.random_split(range(11), [0.5, 0.25, 0.25], generator=td.Generator(1))
    assert [6, 3, 2] == [len(part) for part in parts]
    assert set(range(11)) == {i for part in parts for i in part}
    again = td.data.random_split(range(11), [0.5, 0.25, 0.25], generator=td.Generator(1))
    assert [list(p) for p in parts] == [list(p) for p in again]
    with pytest.raises(ValueError, match="add up to 12; the dataset has 11"):
        td.data.random_split(range(11), [6, 6])


def test_random_samplers_differ_from_time_to_time_and_repeat_with_their_generator():
    first, second = (list(td.data.RandomSampler(range(50), generator=td.Generator(3))) for _ in range(2))
    assert first == second
    sampler = td.data.RandomSampler(range(50), generator=td.Generator(3))
    assert list(sampler) != list(sampler)
    drawn = list(td.data.RandomSampler(range(3), replacement=True, num_samples=100))
    assert (100, {0, 1, 2}) == (len(drawn), set(drawn))
    assert [2, 2, 2] == [list(td.data.RandomSampler(range(3), num_samples=6)).count(i) for i in range(3)]


def test_weighted_samples_follow_their_weights():
    drawn = list(td.data.WeightedRandomSampler([1.0, 3.0, 0.0], 4000, generator=td.Generator(0)))
    assert 0 == drawn.count(2)
    assert 0.7 < drawn.count(1) / 4000 < 0.8
    assert {0, 1, 2} == set(td.data.WeightedRandomSampler([1.0, 3.0, 2.0], 3, replacement=False))


def test_replicas_see_different_parts_of_one_order():
    parts = [list(td.data.DistributedSampler(range(10), 3, rank, seed=5)) for rank in range(3)]
    assert [4, 4, 4] == [len(p) for p in parts]
    assert set(range(10)) == {i for p in parts for i in p}
    parts = [list(td.data.DistributedSampler(range(10), 3, rank, drop_last=True)) for rank in range(3)]
    assert 9 == len({i for p in parts for i in p})
    loader = td.data.DataLoader(range(10), batch_size=5, sampler=td.data.DistributedSampler(range(10), 2, 0))
    epochs = [[b.tolist() for b in loader] for _ in range(2)]
    assert epochs[0] != epochs[1]  # the loader tells it the epoch


def test_batch_samplers():
    loader = td.data.DataLoader(range(10), batch_sampler=[[1, 2], [5]])
    assert [[1, 2], [5]] == [b.tolist() for b in loader]


def test_mixed_keys_are_spread_out():
    keys = {seeding.mix(seed, epoch, index) for seed in range(10) for epoch in range(10) for index in range(100)}
    assert 10_000 == len(keys)
    ones = sum(bin(k).count("1") for k in keys) / (64 * len(keys))
    assert 0.49 < ones < 0.51


def test_neighbouring_samples_draw_independent_numbers():
    def draws(index):
        seeding.begin_sample(0, index, globally=False)
        value = td.data.sample_random().random()
        seeding.end_sample()
        return value

    values = np.array([draws(i) for i in range(2000)])
    assert abs(values.mean() - 0.5) < 0.03
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.07
