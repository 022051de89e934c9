"""Running sums, products and extremes."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_gradients, check_op
from tests.ops.operands import distinct

INF, NAN = float("inf"), float("nan")


# -- scans


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumulative(axis):
    x = distinct((3, 4)) + 0.05
    check_op(td.cumsum, lambda a: a.cumsum(axis), inputs=[(x,)], args=(axis,))
    check_op(td.cumprod, lambda a: a.cumprod(axis), inputs=[(x,)], args=(axis,))
    check_op(
        lambda t: td.cummax(t, axis).values, lambda a: np.maximum.accumulate(a, axis), inputs=[(x,)], names=["cummax"]
    )
    check_op(
        lambda t: td.cummin(t, axis).values, lambda a: np.minimum.accumulate(a, axis), inputs=[(x,)], names=["cummin"]
    )


def test_cumulative_forms():
    x = td.tensor([[1, 2], [3, 4]])
    assert td.cumsum(x).tolist() == [1, 3, 6, 10]
    assert td.cumulative_sum(x, axis=1, include_initial=True).tolist() == [[0, 1, 3], [0, 3, 7]]
    assert td.cumulative_prod(x, axis=0, include_initial=True).tolist() == [[1, 1], [1, 2], [3, 8]]
    with pytest.raises(td.ShapeError, match="axis must be given"):
        td.cumulative_sum(x)
    assert td.cumsum(td.tensor(3.0), 0).item() == 3 and td.cumsum(td.zeros((2, 0)), 1).shape == (2, 0)
    assert td.cummax(td.tensor([1.0, NAN, 3.0]), 0).indices.tolist() == [0, 1, 1]
    np.testing.assert_array_equal(td.cummax(td.tensor([1.0, NAN, 3.0]), 0).values.numpy(), [1, NAN, NAN])
    assert td.cummax(td.tensor([1, 3, 2, 3]), 0).indices.tolist() == [0, 1, 1, 3]
    y = td.tensor([1.0, 2.0, 3.0])
    assert y.cumsum_(0) is y and y.tolist() == [1, 3, 6]
    check_gradients(lambda t: td.cumulative_prod(t, include_initial=True), (np.array([2.0, 0.0, 3.0]),))
