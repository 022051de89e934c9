"""Reductions, summaries, scans."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_gradients, check_op
from tests.ops.operands import distinct

INF, NAN = float("inf"), float("nan")


AXES = [None, 0, -1, (0, 2)]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "amin", "var", "std"])
def test_over_axes(name, axis):
    for keepdims in (False, True):
        check_op(
            getattr(td, name), lambda x, keepdims=keepdims: getattr(np, name)(x, axis=axis, keepdims=keepdims),
            inputs=[(distinct((2, 3, 4)),)], kwargs={"axis": axis, "keepdims": keepdims}, grad=not keepdims, test_layouts=keepdims,
        )  # fmt: skip


def test_dim_and_keepdim_are_accepted():
    x = td.tensor([[1.0, 2.0], [3.0, 5.0]])
    for name in ("sum", "mean", "amax", "var", "logsumexp", "prod", "argmax", "any"):
        function = getattr(td, name)
        assert td.array_equal(function(x, dim=1, keepdim=True), function(x, axis=1, keepdims=True)), name


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "int64"])
def test_integers_add_up_in_64_bits(dtype):
    x = np.array([1, 0, 1, 1], bool) if dtype == "bool" else np.array([100, 100, 50, 7], dtype)
    for name in ("sum", "prod", "cumsum", "cumprod"):
        got = getattr(td, name)(td.tensor(x))
        assert got.dtype is (td.uint64 if dtype == "uint8" else td.int64), name
        np.testing.assert_array_equal(got.numpy(), getattr(np, name)(x))
    assert td.sum(td.tensor(x), dtype="float64").dtype is td.float64
    assert td.mean(td.tensor(x)).dtype is td.float32


def test_product_with_zeros_has_gradients_of_any_order():
    for zeros in ([], [1], [1, 3], [0, 1, 2, 3]):
        x = np.array([2.0, 3.0, -1.0, 4.0])
        x[zeros] = 0
        check_gradients(lambda t: td.prod(t), (x,))
        check_gradients(lambda t: td.cumprod(t, 0), (x,))
    x = np.array([[1.0, 0.0, 2.0], [3.0, 4.0, 0.5]])
    for axis in (0, 1, (0, 1), ()):
        check_gradients(lambda t, axis=axis: td.prod(t, axis), (x,))
    # third order: of x y z it is 1, whatever the values
    t = td.tensor([0.0, 0.0, 0.0], requires_grad=True)
    g = td.prod(t)
    for i in range(3):
        g = td.autograd.grad(g, t, create_graph=True)[0][i]
    assert float(g) == 1


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name):
    x = np.array([[3.0, 1.0, 3.0], [NAN, 7.0, NAN], [-INF, INF, 0.0]], np.float32)
    for axis in (None, 0, 1, -1):
        np.testing.assert_array_equal(
            getattr(td, name)(td.tensor(x), axis=axis).numpy(), getattr(np, name)(x, axis=axis)
        )
    for dtype in ("float16", "int8", "uint64", "bool"):
        y = np.array([[0, 1, 1], [1, 0, 0]]).astype(dtype)
        np.testing.assert_array_equal(getattr(td, name)(td.tensor(y), axis=1).numpy(), getattr(np, name)(y, axis=1))
    assert getattr(td, name)(td.tensor(x), axis=1, keepdims=True).shape == (3, 1)
    assert getattr(td, name)(td.tensor(4.0)).item() == 0
    big = np.random.default_rng(0).normal(size=(5, 10000))
    np.testing.assert_array_equal(getattr(td, name)(td.tensor(big), axis=1).numpy(), getattr(np, name)(big, axis=1))
    with pytest.raises(td.ShapeError, match="zero elements"):
        getattr(td, name)(td.zeros(0))


def test_any_all_count():
    x = np.array([[0.0, NAN, 2.0], [0.0, 0.0, 0.0]], np.float32)
    for axis in (None, 0, 1, (0, 1)):
        np.testing.assert_array_equal(td.any(td.tensor(x), axis=axis).numpy(), np.any(x, axis=axis))
        np.testing.assert_array_equal(td.all(td.tensor(x), axis=axis).numpy(), np.all(x, axis=axis))
        np.testing.assert_array_equal(td.count_nonzero(td.tensor(x), axis=axis).numpy(), np.count_nonzero(x, axis=axis))
    assert bool(td.all(td.zeros(0))) and not bool(td.any(td.zeros(0)))
    assert td.all(td.zeros((2, 0)), axis=1).tolist() == [True, True]
    assert 2.0 in td.tensor(x) and 3.0 not in td.tensor(x)


def test_nan_wins_and_is_skipped():
    x = np.array([[1.0, NAN], [2.0, 3.0]], np.float32)
    for name in ("amax", "amin", "sum", "prod"):
        np.testing.assert_array_equal(getattr(td, name)(td.tensor(x), axis=1).numpy(), getattr(np, name)(x, axis=1))
    np.testing.assert_allclose(td.nansum(td.tensor(x), axis=1).numpy(), np.nansum(x, axis=1))
    np.testing.assert_allclose(td.nanmean(td.tensor(x), axis=1).numpy(), np.nanmean(x, axis=1))
    check_gradients(
        lambda t: td.nanmean(td.where(td.tensor([True, False, True]), t, NAN)), (np.array([1.0, 2.0, 5.0]),)
    )


def test_max_and_min_functions_and_methods():
    x = td.tensor([[1.0, 5.0, 5.0], [7.0, 2.0, 0.0]], requires_grad=True)
    assert td.max(x).item() == 7 and td.min(x).item() == 0
    assert td.max(x, axis=1).tolist() == [5, 7] and td.max(x, axis=(0, 1)).item() == 7
    assert td.max(x, td.tensor(3.0)).tolist() == [[3, 5, 5], [7, 3, 3]]
    values, indices = x.max(1)
    assert (
        values.tolist() == [5, 7] and indices.tolist() == [1, 0] and x.max(dim=1, keepdim=True).values.shape == (2, 1)
    )
    assert x.max().item() == 7 and x.max(td.tensor(6.0)).tolist() == [[6, 6, 6], [7, 6, 6]]
    pair = x.min(0)
    assert pair.values.tolist() == [1, 2, 0] and pair.indices.tolist() == [0, 1, 1]
    values.sum().backward()  # the element at the index takes the gradient
    assert x.grad.tolist() == [[0, 1, 0], [1, 0, 0]]
    x.grad = None
    td.amax(x, 1).sum().backward()  # ties share it
    assert x.grad.tolist() == [[0, 0.5, 0.5], [1, 0, 0]]
    check_op(lambda t: t.max(0).values, lambda a: a.max(0), inputs=[(distinct((3, 4)),)], names=["max"])
    low, high = td.aminmax(x, dim=1)
    assert low.tolist() == [1, 0] and high.tolist() == [5, 7]
    assert td.tensor(3.0).max(0).indices.item() == 0


def test_zero_sizes():
    assert td.sum(td.zeros(0)).item() == 0 and td.prod(td.zeros(0)).item() == 1
    assert td.sum(td.zeros((2, 0, 3)), axis=1).shape == (2, 3)
    assert np.isnan(td.mean(td.zeros(0)).item()) and td.logsumexp(td.zeros(0)).item() == -INF
    with pytest.raises(td.ShapeError, match="zero elements"):
        td.amax(td.zeros((2, 0)), axis=1)
    assert td.amax(td.zeros((0, 2)), axis=1).shape == (0,)


def test_errors_name_the_axis():
    with pytest.raises(td.ShapeError, match="axis 2 is out of range for 2 axes"):
        td.sum(td.zeros((2, 2)), axis=2)
    with pytest.raises(td.ValueRangeError, match="twice"):
        td.sum(td.zeros((2, 2)), axis=(0, -2))


@pytest.mark.parametrize("dtype", [td.float32, td.float64, td.bfloat16, td.float16])
@pytest.mark.parametrize("length", [5, 16, 64, 67, 200])
def test_extrema_find_nan_wherever_it_is(dtype, length):
    x = np.tile(np.arange(length, dtype=np.float64) - length // 2, (length + 1, 1))
    x[np.arange(length), np.arange(length)] = np.nan  # each row but the last has one, at another place
    for function, expected in ((td.amax, x[-1].max()), (td.amin, x[-1].min())):
        found = function(td.tensor(x).to(dtype), 1).to(td.float64).numpy()
        assert np.isnan(found[:-1]).all() and found[-1] == expected


@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "max", "min", "mean"])
def test_reductions_of_no_axes_are_not_views(name):
    x = td.tensor(2.5)
    y = getattr(td, name)(x)
    y += 1
    assert (float(x), float(y)) == (2.5, 3.5)
