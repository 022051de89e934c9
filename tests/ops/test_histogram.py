"""Counts of values."""

import numpy as np
import pytest

import tandem as td
from tests.check import assert_close, check_op

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.normal(size=shape)


def test_counts():
    k = RNG.integers(0, 6, 40)
    assert_close(td.bincount(td.tensor(k), minlength=9), np.bincount(k, minlength=9))
    w = normal(40)
    weights = td.tensor(w, requires_grad=True)
    got = td.bincount(td.tensor(k), weights)
    assert_close(got, np.bincount(k, w))
    (got * td.tensor(np.arange(got.shape[0], dtype=float))).sum().backward()
    assert_close(weights.grad, k.astype(float))
    assert td.bincount(td.zeros(0, dtype=td.int64)).shape == (0,)
    with pytest.raises(td.errors.ValueRangeError, match="contains -1"):
        td.bincount(td.tensor([-1, 2]))
    x = normal(50)
    check_op(td.histc, lambda a: np.histogram(a, 7)[0], inputs=[(x,)], kwargs={"bins": 7}, grad=False)
    check_op(
        td.histc,
        lambda a: np.histogram(a, 4, (-1, 1))[0],
        inputs=[(x,)],
        kwargs={"bins": 4, "min": -1, "max": 1},
        grad=False,
    )
    edges = np.array([-2.0, -0.5, 0.1, 3.0])
    weight = RNG.uniform(size=50)
    for bins, options in (
        (6, {}),
        (6, {"range": (-1.0, 1.0)}),
        (edges, {}),
        (edges, {"density": True}),
        (5, {"weight": weight}),
    ):
        ours = td.histogram(td.tensor(x), bins if isinstance(bins, int) else td.tensor(bins),
                            **{k: td.tensor(v) if k == "weight" else v for k, v in options.items()})  # fmt: skip
        theirs = np.histogram(x, bins, **{"weights" if k == "weight" else k: v for k, v in options.items()})
        assert_close(ours.hist, theirs[0])
        assert_close(ours.bin_edges, theirs[1])
    points = normal(40, 2)
    ours, theirs = td.histogramdd(td.tensor(points), [3, 4]), np.histogramdd(points, [3, 4])
    assert_close(ours.hist, theirs[0])
    for a, b in zip(ours.bin_edges, theirs[1], strict=True):
        assert_close(a, b)
