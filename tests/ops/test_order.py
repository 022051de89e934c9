"""mode, medians, quantiles, running log-sums, unique elements."""

import numpy as np
import pytest
import scipy.stats

import tandem as td
from tests.check import assert_close, check_op

RNG = np.random.default_rng(8)
X = RNG.normal(size=(4, 5))
HOLES = np.where(RNG.uniform(size=(4, 5)) < 0.3, np.nan, X)


def test_mode():
    x = RNG.integers(0, 3, (6, 4))
    values, indices = td.mode(td.tensor(x), 0)
    assert_close(values, scipy.stats.mode(x, axis=0).mode)
    np.testing.assert_array_equal(np.take_along_axis(x, indices.numpy()[None], 0)[0], values.numpy())
    check_op(lambda a: td.mode(a, 1).values, lambda a: a.min(1), inputs=[(X,)], names=["mode"], second=False)
    assert td.mode(td.tensor(x), 0, True).values.shape == (1, 4)
    with pytest.raises(td.errors.ShapeError, match="zero elements"):
        td.mode(td.zeros(0))


def test_msort_and_nanmedian():
    check_op(td.msort, lambda a: np.sort(a, 0), inputs=[(X,)])
    lower = np.nanquantile(HOLES, 0.5, axis=1, method="lower")
    assert_close(td.nanmedian(td.tensor(HOLES), 1).values, lower)
    assert_close(td.nanmedian(td.tensor(HOLES)), np.nanquantile(HOLES, 0.5, method="lower"))
    check_op(
        lambda a: td.nanmedian(a, 0).values,
        lambda a: np.quantile(a, 0.5, axis=0, method="lower"),
        inputs=[(X,)],
        names=["nanmedian"],
    )
    assert np.isnan(td.nanmedian(td.tensor([np.nan, np.nan])).item())


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_quantiles(interpolation):
    q = np.array([0.0, 0.27, 0.5, 1.0])
    for axis in (None, 0, 1):
        got = td.quantile(td.tensor(X), td.tensor(q), axis=axis, interpolation=interpolation)
        assert_close(got, np.quantile(X, q, axis=axis, method=interpolation))
        got = td.nanquantile(td.tensor(HOLES), td.tensor(q), axis=axis, interpolation=interpolation)
        assert_close(got, np.nanquantile(HOLES, q, axis=axis, method=interpolation))
    check_op(lambda a: td.quantile(a, 0.37, axis=1, keepdims=True, interpolation=interpolation),
             lambda a: np.quantile(a, 0.37, axis=1, keepdims=True, method=interpolation), inputs=[(X,)],
             names=["quantile", "nanquantile"])  # fmt: skip
    with pytest.raises(td.errors.ValueRangeError, match="interpolation"):
        td.quantile(td.tensor(X), 0.5, interpolation="cubic")


def test_logcumsumexp():
    check_op(td.logcumsumexp, lambda a: np.logaddexp.accumulate(a, 1), inputs=[(X,)], kwargs={"axis": 1})
    check_op(
        td.logcumsumexp, lambda a: np.logaddexp.accumulate(a, 0), inputs=[(X * 300,)], kwargs={"axis": 0}, second=False
    )
    edge = np.array([-np.inf, -np.inf, 1.0, 1000.0, np.inf])
    assert_close(td.logcumsumexp(td.tensor(edge), 0), np.logaddexp.accumulate(edge))
    with pytest.raises(td.errors.TandemError):
        td.logcumsumexp(td.zeros(2), 3)


def test_unique():
    x = RNG.integers(0, 4, (3, 5))
    values, inverse, counts = td.unique(td.tensor(x), return_inverse=True, return_counts=True)
    expected = np.unique(x, return_inverse=True, return_counts=True)
    assert_close(values, expected[0])
    assert_close(inverse, expected[1].reshape(x.shape))
    assert_close(counts, expected[2])
    rows = RNG.integers(0, 2, (7, 3))
    for axis in (0, 1):
        got = td.unique(td.tensor(rows), dim=axis, return_inverse=True, return_counts=True)
        for ours, theirs in zip(got, np.unique(rows, axis=axis, return_inverse=True, return_counts=True), strict=True):
            assert_close(ours, theirs)
    assert td.unique(td.tensor([np.nan, np.nan])).shape == (2,)
    assert td.unique(td.zeros(0)).shape == (0,)
    assert td.zeros(3).unique().tolist() == [0.0]


def test_unique_consecutive():
    values, inverse, counts = td.unique_consecutive(
        td.tensor([1, 1, 2, 2, 2, 1]), return_inverse=True, return_counts=True
    )
    assert (values.tolist(), inverse.tolist(), counts.tolist()) == ([1, 2, 1], [0, 0, 1, 1, 1, 2], [2, 3, 1])
    assert td.unique_consecutive(td.tensor([[1, 1], [1, 1], [0, 1]]), dim=0).tolist() == [[1, 1], [0, 1]]
