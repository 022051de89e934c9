"""Comparisons, logic, choices and bounds."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_op

INF, NAN = float("inf"), float("nan")


def test_clamps():
    check_op(td.clip, lambda x: np.clip(x, -0.5, 0.5), shapes=[(3, 4), ()], args=(-0.5, 0.5))
    check_op(td.clamp_min, lambda x: np.maximum(x, 0.1), shapes=[(5,)], args=(0.1,))
    check_op(td.clamp_max, lambda x: np.minimum(x, 0.1), shapes=[(5,)], args=(0.1,))
    x = np.array([NAN, -1.0, 2.0])
    np.testing.assert_array_equal(td.clip(td.tensor(x), 0, 1).numpy(), np.clip(x, 0, 1))
    assert td.tensor([1, 5]).clamp_(max=3).tolist() == [1, 3] and td.tensor([1, 5]).clamp(
        min=td.tensor([2, 6])
    ).tolist() == [2, 6]


def test_gradients_at_corners():
    def gradient(fn, *values):
        tensors = [td.tensor(v, requires_grad=True) for v in values]
        return [float(g) for g in td.autograd.grad(fn(*tensors), tensors)]

    assert gradient(td.hypot, 0.0, 0.0) == [0.0, 0.0]
    assert gradient(td.logaddexp, -INF, -INF) == [0.5, 0.5]
    assert gradient(td.logaddexp, 0.0, -INF) == [1.0, 0.0]
    assert gradient(td.maximum, 1.0, 1.0) == [0.5, 0.5]
    assert gradient(td.fmax, NAN, 1.0) == [0.0, 1.0]
    assert gradient(td.fmax, 1.0, 1.0) == [1.0, 0.0]
    assert gradient(td.fmin, 1.0, 1.0) == [1.0, 0.0]


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_logic(name):
    for dtype in ("bool", "float32", "int32"):
        check_op(
            getattr(td, name),
            getattr(np, name),
            shapes=[((3, 4), (4,))],
            dtypes=[dtype],
            low=-1,
            high=1,
            grad=False,
            test_layouts=False,
        )
    assert td.logical_not(td.tensor([0.0, 2.0])).tolist() == [True, False]


def test_where_and_isin():
    check_op(lambda x, y: td.where(td.tensor([True, False, True]), x, y), lambda x, y: np.where([True, False, True], x, y),
             shapes=[((2, 3), (3,)), ((3,), ())], names=["where"])  # fmt: skip
    positions = td.where(td.tensor([[0, 1], [2, 0]]))
    assert [p.tolist() for p in positions] == [[0, 1], [1, 0]]
    assert td.tensor([1.0, 2.0]).where(td.tensor([True, False]), 0).tolist() == [1.0, 0.0]
    assert td.where(td.tensor([True]), 1, 2.5).dtype is td.float32
    assert td.isin(td.tensor([[1, 2], [3, 4]]), td.tensor([4, 1])).tolist() == [[True, False], [False, True]]
    assert td.isin(td.tensor([1, 2]), td.tensor([2]), invert=True).tolist() == [True, False]


def test_masked_fill():
    check_op(td.masked_fill, lambda x, m, v: np.where(m, v, x),
             inputs=[(np.arange(6.0).reshape(2, 3), np.array([True, False, True]), np.asarray(9.0))])  # fmt: skip
    x = td.zeros((2, 2))
    assert x.masked_fill_(td.tensor([True, False]), 5) is x and x.tolist() == [[5, 0], [5, 0]]
