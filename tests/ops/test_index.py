"""x[key] and x[key] = value against NumPy; functions on index tensors."""

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tests.check import check_op

# -- functions


def test_gather_at():
    check_op(F.gather_at, lambda x: x[:, [1, 0, 1]], shapes=[(2, 3)], args=([td.tensor([1, 0, 1])], (1,)))


def test_scatter_at():
    def reference(x, v):
        x = x.copy()
        x[[2, 0]] = v
        return x

    check_op(
        lambda x, v: F.scatter_at(x, [td.tensor([2, 0])], (0,), v),
        reference,
        shapes=[((3, 2), (2, 2)), ((3,), ())],
        names=["scatter_at"],
    )


def test_index_select():
    check_op(td.index_select, lambda x: x[:, [2, 0, 2]], shapes=[(2, 3), (0, 3)], args=(1, td.tensor([2, 0, 2])))
    with pytest.raises(td.ShapeError, match="must be 1-d"):
        td.index_select(td.zeros(3), 0, td.tensor([[0]]))
    with pytest.raises(td.DTypeError):
        td.index_select(td.zeros(3), 0, td.tensor([0.0]))


def test_take():
    index = np.array([[3, 0], [-1, 2]])
    check_op(td.take, lambda x: np.take(x, index), shapes=[(2, 3), (4,)], args=(td.tensor(index),))
    check_op(td.take, lambda x: np.take(x, index % 2, 1), shapes=[(2, 3)], args=(td.tensor(index % 2), 1))
    check_op(F.index_basic, lambda x: x[1:], shapes=[(3, 2)], args=("A", (1,)))


def test_take_along_axis():
    index = np.array([[2, 0, 1], [1, -1, 0]])
    check_op(td.take_along_axis, lambda x: np.take_along_axis(x, index, 1), shapes=[(2, 3)], args=(td.tensor(index), 1))
    check_op(
        td.take_along_axis,
        lambda x: np.take_along_axis(x, index[:1, 1:2], 0),
        shapes=[(2, 3)],
        args=(td.tensor(index[:1, 1:2]), 0),
    )


def test_gather():
    index = np.array([[1, 0]])
    check_op(td.gather, lambda x: np.take_along_axis(x[:, :2], index, 0), shapes=[(2, 3)], args=(0, td.tensor(index)))
    with pytest.raises(td.ShapeError, match="larger than x"):
        td.gather(td.zeros((2, 2)), 0, td.tensor([[0, 0, 0]]))
    with pytest.raises(td.IndexRangeError, match=r"2 .*axis 0.*2"):
        td.gather(td.zeros((2, 2)), 0, td.tensor([[2, 0]]))
    assert td.gather(td.tensor(5.0), 0, td.tensor(0)).tolist() == 5


def test_copy():
    check_op(F.copy_to, lambda x, s: np.broadcast_to(s, x.shape), shapes=[((2, 3), (3,)), ((2, 3), ())])
    with pytest.raises(td.ShapeError):
        td.zeros(3).copy_(td.zeros((2, 3)))
