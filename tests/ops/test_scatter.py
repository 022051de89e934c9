"""Writes to positions: scatter, put and their relatives."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_gradients, check_op

INDEX = np.array([[0, 1, 0], [2, 2, 1], [0, 0, 0]])


def numpy_scatter(mode):
    def reference(x, source):
        out = x.copy()
        for i in range(INDEX.shape[0]):
            for j in range(INDEX.shape[1]):
                at = (INDEX[i, j], j)
                out[at] = mode(out[at], source[i, j])
        return out

    return reference


def test_scatter():
    shapes = [((3, 3), (3, 3)), ((4, 5), (4, 3))]
    args = (0, td.tensor(INDEX))
    wrap = lambda fn, **kw: lambda x, source: fn(x, *args, source, **kw)
    check_op(wrap(td.scatter), numpy_scatter(lambda a, b: b), shapes=shapes, names=["scatter"])
    check_op(wrap(td.scatter_add), numpy_scatter(lambda a, b: a + b), shapes=shapes, names=["scatter_add"])
    check_op(wrap(td.scatter, reduce="multiply"), numpy_scatter(lambda a, b: a * b), shapes=shapes)
    x = td.zeros(3)
    assert x.scatter_(0, td.tensor([1]), 5.0) is x
    x.scatter_add_(0, td.tensor([1, 1]), td.tensor([1.0, 2.0]))
    assert x.tolist() == [0, 8, 0]
    assert td.scatter(td.zeros(3), 0, td.tensor([1, 1]), 2.0, reduce="add").tolist() == [0, 4, 0]
    assert td.scatter(td.tensor(1.0), 0, td.tensor(0), 4.0).tolist() == 4
    with pytest.raises(td.ShapeError, match="smaller than index"):
        td.scatter(td.zeros(3), 0, td.tensor([0, 1]), td.zeros(1))
    with pytest.raises(td.ValueRangeError):
        td.scatter(td.zeros(3), 0, td.tensor([0]), 1.0, reduce="amax")


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(reduce, include_self):
    def reference(x, source):
        fn = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min}[reduce]
        out = x.copy()
        for r in range(x.shape[0]):
            for j in range(INDEX.shape[1]):
                found = [source[i, j] for i in range(INDEX.shape[0]) if INDEX[i, j] == r]
                if found:
                    out[r, j] = fn(([x[r, j]] if include_self else []) + found)
        return out

    check_op(lambda x, s: td.scatter_reduce(x, 0, td.tensor(INDEX), s, reduce, include_self=include_self), reference,
             shapes=[((4, 3), (3, 3))],
             names=["scatter_reduce"], dtypes=("float32",) if reduce == "mean" else ("float32", "int64"))  # fmt: skip


def test_scatter_prod_with_zeros():
    x, source = np.array([2.0, 0.0, 3.0]), np.array([0.0, 5.0, 0.0, 0.0, 4.0])
    index = td.tensor([0, 0, 1, 2, 2])
    check_gradients(lambda x, s: td.scatter_reduce(x, 0, index, s, "prod"), (x, source), second=False)


def rows(fn):
    def reference(x, source):
        out = x.copy()
        for i, r in enumerate([2, 0, 2]):
            out[r] = fn(out[r], source[i])
        return out

    return reference


def test_index_add_copy_fill_reduce():
    at = td.tensor([2, 0, 2])
    shapes = [((3, 4), (3, 4)), ((3,), (3,))]
    check_op(
        lambda x, s: td.index_add(x, 0, at, s, alpha=2),
        rows(lambda a, b: a + 2 * b),
        shapes=shapes,
        names=["index_add"],
    )
    check_op(lambda x, s: td.index_copy(x, 0, at, s), rows(lambda a, b: b), shapes=shapes, names=["index_copy"])
    check_op(
        lambda x, s: td.index_reduce(x, 0, at, s, "prod"),
        rows(lambda a, b: a * b),
        shapes=shapes,
        names=["index_reduce"],
    )
    check_op(
        lambda x: td.index_fill(x, 0, at, 7),
        lambda x: rows(lambda a, b: a * 0 + 7)(x, x),
        shapes=[(3, 4)],
        names=["index_fill"],
    )
    x = td.zeros((2, 3))
    x.index_fill_(1, td.tensor([0, 2]), 4.0).index_copy_(0, td.tensor([1]), td.ones((1, 3))).index_add_(
        0, td.tensor([0]), td.ones((1, 3))
    )
    assert x.tolist() == [[5, 1, 5], [1, 1, 1]]
    with pytest.raises(td.ShapeError):
        td.index_add(td.zeros((2, 3)), 0, td.tensor([0]), td.ones((2, 3)))


def test_put():
    index = np.array([[5, 0], [-1, 2]])

    def reference(x, s):
        out = x.copy()
        np.put(out, index, s)
        return out

    check_op(lambda x, s: td.put(x, td.tensor(index), s), reference, shapes=[((2, 3), (2, 2))], names=["put"])
    assert td.put(td.zeros(3), td.tensor([1, 1]), td.ones(2), accumulate=True).tolist() == [0, 2, 0]
    assert td.zeros(2).put_(td.tensor(1), 3.0).tolist() == [0, 3]


def test_put_along_axis():
    def reference(x, v):
        out = x.copy()
        np.put_along_axis(out, np.array([[1], [0]]), v, 1)
        return out

    check_op(
        lambda x, v: td.put_along_axis(x, td.tensor([[1], [0]]), v, axis=1),
        reference,
        shapes=[((2, 3), (2, 1))],
        names=["put_along_axis"],
    )


def test_index_put():
    def reference(x, v):
        out = x.copy()
        np.add.at(out, (slice(None), [0, 2, 0]), v)
        return out

    at = (None, td.tensor([0, 2, 0]))
    check_op(
        lambda x, v: td.index_put(x, at, v, accumulate=True),
        reference,
        shapes=[((2, 3), (2, 3)), ((2, 3), ())],
        names=["index_put"],
        deferred=False,  # writes into a view of a copy
    )
    x = td.zeros(3)
    assert x.index_put_((td.tensor([True, False, True]),), td.tensor([1.0, 2.0])).tolist() == [1, 0, 2]
    with pytest.raises(td.IndexRangeError):
        x.index_put_((td.tensor([0, 3]),), 9.0)
    assert x.tolist() == [1, 0, 2]


def test_masked_scatter():
    mask = np.array([[True, False, True], [False, True, True]])

    def reference(x, s):
        out = x.copy()
        out[mask] = s.reshape(-1)[: mask.sum()]
        return out

    check_op(
        lambda x, s: td.masked_scatter(x, td.tensor(mask), s),
        reference,
        shapes=[((2, 3), (5,)), ((2, 3), (2, 2))],
        names=["masked_scatter"],
    )
    assert td.masked_scatter(td.zeros(3), td.tensor([False] * 3), td.zeros(0)).tolist() == [0, 0, 0]
    x = td.zeros(3)
    for source in (td.zeros(1), td.zeros(0)):
        with pytest.raises(td.TandemError):
            x.masked_scatter_(td.tensor([True, True, False]), source)


def test_select_and_slice_scatter():
    def selected(x, s):
        out = x.copy()
        out[:, 1] = s
        return out

    def sliced(x, s):
        out = x.copy()
        out[:, ::2] = s
        return out

    both = {"deferred": False}  # they write into a view of a copy
    check_op(
        lambda x, s: td.select_scatter(x, s, 1, 1), selected, shapes=[((2, 3), (2,))], names=["select_scatter"], **both
    )
    check_op(
        lambda x, s: td.slice_scatter(x, s, 1, step=2),
        sliced,
        shapes=[((2, 3), (2, 2))],
        names=["slice_scatter"],
        **both,
    )
    with pytest.raises(td.ShapeError):
        td.select_scatter(td.zeros((2, 3)), td.zeros(3), 1, 1)
