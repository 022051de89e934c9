"""Arrangements of elements: products, combinations, diagonals, segments."""

import itertools

import numpy as np
import pytest

import tandem as td
from tests.check import assert_close, check_op

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.normal(size=shape)


def test_arrangements():
    a, b = np.arange(3), np.arange(2) + 7
    assert_close(td.cartesian_prod(td.tensor(a), td.tensor(b)), np.array(list(itertools.product(a, b))))
    for r, replacement in ((2, False), (2, True), (3, False), (3, True)):
        choose = itertools.combinations_with_replacement if replacement else itertools.combinations
        got = td.combinations(td.arange(4), r, replacement)
        assert_close(got, np.array(list(choose(range(4), r))))
    assert td.combinations(td.arange(2), 3).shape == (0, 3)
    x = normal(3, 4)
    check_op(td.diagflat, lambda a: np.diagflat(a, 1), inputs=[(normal(2, 2),)], kwargs={"offset": 1})
    check_op(td.fliplr, np.fliplr, inputs=[(x,)])
    check_op(td.flipud, np.flipud, inputs=[(x,)])
    check_op(td.vander, np.vander, inputs=[(normal(3),), (np.array([1, 2, 5]),)])
    check_op(td.vander, lambda a: np.vander(a, 4, True), inputs=[(normal(3),)], kwargs={"N": 4, "increasing": True})
    for ours, theirs in zip(
        td.unravel_index(td.tensor([5, 11]), (3, 4)), np.unravel_index([5, 11], (3, 4)), strict=True
    ):
        assert_close(ours, theirs)
    with pytest.raises(td.errors.ValueRangeError, match="beyond the 12 elements"):
        td.unravel_index(td.tensor([12]), (3, 4))
    i = RNG.integers(0, 3, (2, 4))
    check_op(td.take_along_dim, lambda a, i: np.take_along_axis(a, i, 0), inputs=[(x, i)], kwargs={"axis": 0})
    assert_close(td.take_along_dim(td.tensor(x), td.tensor([[5]])), x.reshape(-1)[[5]])
    expected = x.copy()
    np.fill_diagonal(expected, [7, 8, 9])
    placed = lambda a, d: np.where(np.eye(3, 4), np.pad(np.diag(d), ((0, 0), (0, 1))), a)
    check_op(td.diagonal_scatter, placed, inputs=[(x, normal(3))],
             deferred=False)  # fmt: skip
    assert_close(td.as_strided_scatter(td.tensor(x), td.tensor([7.0, 8, 9]).double(), (3,), (5,)), expected)
    t = td.tensor(x)
    assert t.fill_diagonal_(2.0) is t
    np.fill_diagonal(expected, 2.0)
    assert_close(t, expected)


def test_segments():
    x = normal(6, 2)
    lengths = np.array([2, 0, 3, 1])
    parts = np.split(x, np.cumsum(lengths)[:-1])
    for kind, fold in (("sum", np.sum), ("prod", np.prod)):
        check_op(lambda a, kind=kind: td.segment_reduce(a, kind, lengths=td.tensor(lengths)),
                 lambda a, fold=fold: np.stack([fold(p, 0) for p in parts]),
                 inputs=[(x,)], names=["segment_reduce"], deferred=False)  # fmt: skip
    got = td.segment_reduce(td.tensor(x), "max", offsets=td.tensor([0, 2, 2, 5, 6]), initial=-9.0)
    assert_close(got, np.stack([np.max(np.vstack([p, [[-9, -9]]]), 0) for p in parts]))
    got = td.segment_reduce(td.tensor(x), "mean", lengths=td.tensor(lengths)).numpy()
    assert np.isnan(got[1]).all()
    np.testing.assert_allclose(got[[0, 2, 3]], [parts[i].mean(0) for i in (0, 2, 3)])
    got = td.segment_reduce(td.tensor(x), "mean", lengths=td.tensor(lengths), initial=0.5)
    assert_close(got, np.stack([(p.sum(0) + 0.5) / max(len(p), 1) for p in parts]))
    with pytest.raises(td.errors.ShapeError, match="add up to 3"):
        td.segment_reduce(td.tensor(x), "sum", lengths=td.tensor([1, 2]))
    with pytest.raises(td.ValueRangeError, match="lengths contain -1; none may be negative"):
        td.segment_reduce(td.tensor(x), "sum", lengths=td.tensor([7, -1]))
    with pytest.raises(td.ValueRangeError, match="offsets do not begin with 0"):
        td.segment_reduce(td.tensor(x), "sum", offsets=td.tensor([1, 3, 7]))


def test_segments_of_every_row():
    x, lengths = normal(2, 3, 2), [[1, 2], [3, 0]]
    for kind in ("sum", "mean", "max", "prod"):
        got = td.segment_reduce(td.tensor(x), kind, lengths=td.tensor(lengths), axis=1, initial=1.0)
        rows = [td.segment_reduce(td.tensor(r), kind, lengths=td.tensor(n), initial=1.0) for r, n in zip(x, lengths)]
        assert_close(got, td.stack(rows).numpy())
    got = td.segment_reduce(td.tensor(x), "sum", offsets=td.tensor([[0, 1, 3], [0, 3, 3]]), axis=1)
    assert_close(got, td.segment_reduce(td.tensor(x), "sum", lengths=td.tensor(lengths), axis=1).numpy())
    with pytest.raises(td.ShapeError, match=r"along axis 1 they must have 2 axes"):
        td.segment_reduce(td.tensor(x), "sum", lengths=td.tensor([1, 2]), axis=1)
    with pytest.raises(td.ShapeError, match="add up to 2"):
        td.segment_reduce(td.tensor(x), "sum", lengths=td.tensor([[1, 2], [2, 0]]), axis=1)


def test_positions_of_a_fixed_number():
    x = np.array([[0, 3], [4, 0], [5, 6]])
    found = np.argwhere(x)
    for size in (2, 4, 6):
        expected = np.full((size, 2), -1)
        expected[: min(size, 4)] = found[:size]
        check_op(
            lambda a, n=size: td.nonzero_static(a, size=n),
            lambda a, e=expected: e,
            inputs=[(x,)],
            names=["nonzero_static"],
        )
