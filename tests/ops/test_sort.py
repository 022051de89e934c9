"""Order, selection and search."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_op

INF, NAN = float("inf"), float("nan")


def distinct(shape, seed=0):
    n = int(np.prod(shape))
    return (np.random.default_rng(seed).permutation(n).reshape(shape) / 7.0).astype(np.float64)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sort(axis):
    x = distinct((4, 5))
    check_op(lambda t: td.sort(t, axis=axis), lambda a: np.sort(a, axis), inputs=[(x,)], names=["sort"])
    check_op(
        lambda t: td.sort(t, axis=axis, descending=True),
        lambda a: -np.sort(-a, axis),
        inputs=[(x,)],
        second=False,
        test_layouts=False,
    )
    check_op(td.argsort, lambda a: np.argsort(a, axis, kind="stable"), inputs=[(x,)], kwargs={"axis": axis}, grad=False)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int64", "uint8", "bool"])
def test_sort_is_stable(dtype):
    x = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 5, (3, 40)).astype(dtype)
    np.testing.assert_array_equal(td.argsort(td.tensor(x)).numpy(), np.argsort(x, kind="stable"))
    values, indices = td.tensor(x).sort(descending=True)
    expected = np.argsort(-x.astype(np.float64), kind="stable")
    np.testing.assert_array_equal(indices.numpy(), expected)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, expected, -1))


def test_nan_is_last():
    x = np.array([1.0, NAN, -INF, INF, 0.0], np.float32)
    np.testing.assert_array_equal(td.sort(td.tensor(x)).numpy(), np.sort(x))


def test_topk():
    x = distinct((4, 6))
    check_op(lambda t: td.topk(t, 3).values, lambda a: -np.sort(-a)[:, :3], inputs=[(x,)], names=["topk"])
    check_op(lambda t: td.topk(t, 2, axis=0, largest=False).values, lambda a: np.sort(a, 0)[:2], inputs=[(x,)])
    values, indices = td.tensor(x).topk(2, dim=1)
    np.testing.assert_array_equal(np.take_along_axis(x, indices.numpy(), 1), values.numpy())
    assert td.topk(td.tensor(x), 0).values.shape == (4, 0)
    with pytest.raises(td.ValueRangeError, match="k is 7"):
        td.topk(td.tensor(x), 7)


def test_kthvalue_and_median():
    x = distinct((4, 5))
    for k in (1, 3, 5):
        check_op(lambda t, k=k: td.kthvalue(t, k).values, lambda a, k=k: np.sort(a)[:, k - 1], inputs=[(x,)], test_layouts=False,
                 names=["kthvalue"])  # fmt: skip
    check_op(lambda t: td.median(t, 1).values, lambda a: np.median(a, 1), inputs=[(x,)], names=["median"])
    assert td.median(td.tensor([4.0, 1.0, 3.0, 2.0])).item() == 2.0
    assert td.median(td.tensor([[4, 1, 3]]), 1, keepdims=True).indices.tolist() == [[2]]
    assert np.isnan(td.median(td.tensor([4.0, NAN, 3.0])).item())
    with pytest.raises(td.ShapeError, match="zero elements"):
        td.median(td.zeros(0))


def test_quantile():
    x = distinct((4, 5))
    check_op(lambda t: td.quantile(t, td.tensor([0.1, 0.5, 0.9], dtype=t.dtype), 1),
             lambda a: np.quantile(a, [0.1, 0.5, 0.9], axis=1), inputs=[(x,)], names=["quantile"])  # fmt: skip
    np.testing.assert_allclose(td.quantile(td.tensor(x), 0.3).item(), np.quantile(x, 0.3))
    assert td.quantile(td.tensor(x), 0.5, 0, keepdims=True).shape == (1, 5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(side):
    for n in (0, 1, 2, 3, 7, 8, 9, 100):
        line = np.sort(np.random.default_rng(n).integers(0, 40, n)).astype(np.float32)
        values = np.concatenate([line, line + 0.5, [-INF, INF, NAN, 0]]).astype(np.float32)
        got = td.searchsorted(td.tensor(line), td.tensor(values), side=side)
        np.testing.assert_array_equal(got.numpy(), np.searchsorted(line, values, side))
    rows = td.tensor([[1, 3, 5], [2, 4, 6]])
    assert td.searchsorted(rows, td.tensor([[3], [3]]), side=side).tolist() == (
        [[1], [1]] if side == "left" else [[2], [1]]
    )
    assert (
        td.bucketize(td.tensor([[1.0, 2.0]]), td.tensor([1.0, 2.0]), right=side == "right").tolist()
        == np.searchsorted([1.0, 2.0], [[1.0, 2.0]], side).tolist()
    )


def test_0d():
    x = td.tensor(3.0)
    assert td.sort(x, 0).values.item() == 3 and td.argsort(x, 0).item() == 0 and x.topk(1, 0).indices.item() == 0
