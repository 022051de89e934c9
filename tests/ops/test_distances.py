"""Distances between rows, norms and rows made shorter."""

import numpy as np
import pytest
import scipy.spatial.distance as D

import tandem as td
from tests.check import assert_close, check_op

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.normal(size=shape)


@pytest.mark.parametrize(
    ("p", "metric"), [(1.0, "cityblock"), (2.0, "euclidean"), (np.inf, "chebyshev"), (3.0, "minkowski")]
)
def test_distances(p, metric):
    extra = {"p": 3} if metric == "minkowski" else {}
    reference = lambda a, b: D.cdist(a, b, metric, **extra)
    check_op(td.cdist, reference, inputs=[(normal(3, 4), normal(2, 4))], kwargs={"p": p})
    check_op(td.pdist, lambda a: D.pdist(a, metric, **extra), inputs=[(normal(5, 3),)], kwargs={"p": p}, deferred=False)


def test_distances_by_products_and_of_equal_points():
    a, b = normal(30, 4), normal(28, 4)
    assert_close(td.cdist(td.tensor(a), td.tensor(b)), D.cdist(a, b))
    x = td.tensor(np.zeros((2, 3)), requires_grad=True)
    td.cdist(x, x).sum().backward()
    assert not x.grad.numpy().any()
    assert_close(td.cdist(td.tensor(a), td.tensor(b), p=0), np.full((30, 28), 4.0))
    with pytest.raises(td.errors.ShapeError, match="cdist"):
        td.cdist(td.ones(2, 3), td.ones(2, 4))


def test_dist_and_renorm():
    check_op(
        td.dist,
        lambda a, b: (np.abs(a - b) ** 3).sum() ** (1 / 3),
        inputs=[(normal(3, 4), normal(3, 4))],
        kwargs={"p": 3},
    )
    x = normal(3, 4)
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    reference = np.where(norms > 1.5, x * (1.5 / (norms + 1e-7)), x)
    check_op(td.renorm, lambda a: reference, inputs=[(x,)], kwargs={"p": 2, "axis": 0, "maxnorm": 1.5})
    t = td.tensor(x)
    assert t.renorm_(2, 0, 1.5) is t
    assert_close(t, reference)


def test_counted_differences_take_part_in_gradients():
    a, b = (td.tensor(normal(2, 3), requires_grad=True) for _ in range(2))
    td.cdist(a, b, 0).sum().backward()
    assert a.grad.tolist() == [[0.0] * 3] * 2 and b.grad.tolist() == [[0.0] * 3] * 2
