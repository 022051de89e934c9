"""Samples become batches."""

import collections

import numpy as np
import pytest

import tandem as td

Point = collections.namedtuple("Point", ("x", "y"))


def test_collate_keeps_the_structure_of_samples():
    batch = td.data.default_collate(
        [{"p": Point(1, 2.5), "s": "a", "n": None}, {"p": Point(3, 4.5), "s": "b", "n": None}]
    )
    assert isinstance(batch["p"], Point)
    assert [1, 3] == batch["p"].x.tolist()
    assert td.float64 is batch["p"].y.dtype
    assert ["a", "b"] == batch["s"]
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


def test_strings_are_a_list_or_a_tuple_as_in_pytorch():
    assert td.data.default_collate(["a", "b"]) == ["a", "b"]
    assert td.data.default_collate([{"s": "a", "t": ("b", 1)}] * 2)["s"] == ["a", "a"]
    assert td.data.default_collate([("a", {"s": "b"})] * 2) == [("a", "a"), {"s": ["b", "b"]}]


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
