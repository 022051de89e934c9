"""Datasets, samplers, collation, seeds."""

import pytest

import tandem as td


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
