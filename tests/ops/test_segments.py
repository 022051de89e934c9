"""Reductions over rows that have the same number."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_op

SEGMENT = np.array([3, 0, 3, 1, 0, 3])
REDUCE = {
    td.segment_sum: np.sum, td.segment_mean: np.mean, td.segment_max: np.max, td.segment_min: np.min, td.segment_prod: np.prod,
}  # fmt: skip


@pytest.mark.parametrize("function", REDUCE)
def test_segment_reductions(function):

    def reference(x, segment):
        empty = np.ones_like(x[0]) if function is td.segment_prod else np.zeros_like(x[0])
        rows = [x[segment == i] for i in range(5)]
        return np.stack([REDUCE[function](r, 0) if len(r) else empty for r in rows])

    x = np.random.default_rng(0).permutation(np.linspace(-2, 2, 12)).astype(np.float32).reshape(6, 2)
    check_op(function, reference, inputs=[(x, SEGMENT), (x[:, 0], SEGMENT)], args=(5,))


def test_segment_softmax():
    def reference(x, segment):
        out = np.zeros_like(x)
        for i in range(5):
            raised = np.exp(x[segment == i])
            out[segment == i] = raised / raised.sum(0)
        return out

    x = np.random.default_rng(0).standard_normal((6, 2)).astype(np.float32)
    check_op(td.segment_softmax, reference, inputs=[(x, SEGMENT)], args=(5,))


def test_integers_are_reduced_too():
    x = td.tensor([5, 7, 1])
    segment = td.tensor([2, 0, 2])
    assert td.segment_sum(x, segment, 3).tolist() == [7, 0, 6]
    assert td.segment_max(x, segment, 3).tolist() == [7, 0, 5]
    with pytest.raises(td.DTypeError, match="means are of floats"):
        td.segment_mean(x, segment, 3)


def test_numbers_are_checked():
    with pytest.raises(td.IndexRangeError, match="index 3 is out of range for axis 0 with size 3"):
        td.segment_sum(td.ones(1), td.tensor([3]), 3)
    with pytest.raises(td.ShapeError, match="a number for every row"):
        td.segment_sum(td.ones(2), td.tensor([0]), 3)


def test_numbers_of_segments_are_not_counted_from_the_end():
    for function in (td.segment_sum, td.segment_mean, td.segment_max, td.segment_softmax):
        for one in (function, td.compile(function)):
            with pytest.raises(td.IndexRangeError, match="index -1 is out of range"):
                one(td.ones(3), td.tensor([0, -1, 1]), 2)
