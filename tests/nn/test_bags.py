"""Bags of embeddings."""

import pytest

import tandem as td
import tandem.nn.functional as F


def test_embedding_bag_counts_a_negative_padding_idx_from_the_end():
    weight = td.tensor([[1.0], [2.0], [10.0]])
    index = td.tensor([[0, 2], [1, 2]])
    for mode, expected in (("sum", [[1.0], [2.0]]), ("mean", [[1.0], [2.0]]), ("max", [[1.0], [2.0]])):
        assert F.embedding_bag(index, weight, mode=mode, padding_idx=-1).tolist() == expected
    flat = F.embedding_bag(td.tensor([0, 2, 1]), weight, td.tensor([0, 2]), mode="sum", padding_idx=-1)
    assert flat.tolist() == [[1.0], [2.0]]
    with pytest.raises(td.ValueRangeError, match="padding_idx is 3; weight has 3 rows"):
        F.embedding_bag(index, weight, padding_idx=3)
