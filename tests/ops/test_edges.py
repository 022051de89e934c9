"""Products with sparse matrices, sums over groups of rows, softmax over segments."""

import itertools

import numpy as np
import pytest

import tandem as td
from tandem.ops import edges
from tandem.sparse.structure import structure
from tests.check import check_op

N, K, M = 5, 4, 9
RNG = np.random.default_rng(0)
ROW, COLUMN = RNG.integers(0, N, M), RNG.integers(0, K, M)
PLACES = structure(td.tensor(ROW), td.tensor(COLUMN), N, K)
EDGES = list(PLACES.edges)


def beside(x, tensors):
    """tensors where x is; values of a graph are on no device yet"""
    return [t.to(x.device) for t in tensors] if isinstance(x, td.Tensor) else list(tensors)


def sample(*shape):
    return RNG.uniform(-2, 2, shape).astype(np.float32)


@pytest.mark.parametrize("h, d", [(1, 3), (2, 4), (1, 40), (3, 16), (1, 100)])
def test_spmm(h, d):
    def reference(x, values):
        out = np.zeros((N, h, d), np.float32)
        np.add.at(out, ROW, values[:, :, None] * x[COLUMN])
        return out

    check_op(
        lambda x, values: edges.spmm(x, values, beside(x, EDGES)),
        reference,
        inputs=[(sample(K, h, d), sample(M, h))],
        names=["spmm"],
        transforms=h == 2,
        grad=d < 10,
    )


def test_spmm_without_weights():
    def reference(x):
        out = np.zeros((N, 2, 3), np.float32)
        np.add.at(out, ROW, x[COLUMN])
        return out

    check_op(lambda x: edges.spmm(x, None, beside(x, EDGES)), reference, inputs=[(sample(K, 2, 3),)], names=["spmm"])


@pytest.mark.parametrize("h, d", [(1, 3), (2, 4), (3, 16)])
def test_sddmm(h, d):
    check_op(
        lambda a, x: edges.sddmm(a, x, beside(x, EDGES)),
        lambda a, x: (a[ROW] * x[COLUMN]).sum(-1),
        inputs=[(sample(N, h, d), sample(K, h, d))],
        names=["sddmm"],
        transforms=h == 2,
        grad=d < 10,
    )


def test_edge_gather_and_edge_sum():
    where = td.tensor(ROW), PLACES.start, PLACES.order
    check_op(
        lambda x: edges.edge_gather(x, *beside(x, where)),
        lambda x: x[ROW],
        inputs=[(sample(N, 3),)],
        names=["edge_gather"],
    )

    def reference(x):
        out = np.zeros((N, 2, 3), x.dtype)
        np.add.at(out, ROW, x)
        return out

    check_op(lambda x: edges.edge_sum(x, *beside(x, where)), reference, inputs=[(sample(M, 2, 3),)], names=["edge_sum"])


@pytest.mark.parametrize("h", [1, 2, 20])
def test_edge_softmax(h):
    start = np.array([0, 3, 3, 4, 9])

    def reference(x):
        out = np.zeros_like(x)
        for a, b in itertools.pairwise(start):
            raised = np.exp(x[a:b] - x[a:b].max(0, initial=-np.inf))
            out[a:b] = raised / raised.sum(0)
        return out

    check_op(
        lambda x: edges.edge_softmax(x, *beside(x, [td.tensor(start)])),
        reference,
        inputs=[(sample(M, h),)],
        names=["edge_softmax"],
        transforms=h == 2,
        grad=h < 10,
    )


def test_group_index():
    start, order = edges.group_index(td.tensor([2, 0, 2, 3, 0]), 5)
    assert start.tolist() == [0, 2, 2, 4, 5, 5] and order.tolist() == [1, 4, 0, 2, 3]
    with pytest.raises(td.IndexRangeError, match="index 5 is out of range for axis 0 with size 5"):
        edges.group_index(td.tensor([5]), 5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "complex64"])
def test_coalesce_rows(dtype):
    values = td.tensor(np.arange(10).reshape(5, 2)).to(getattr(td, dtype))
    rows, sums, count = edges.coalesce_rows(td.tensor([7, 3, 7, 3, 9]), values)
    assert count.item() == 3 and rows.tolist() == [3, 7, 9, 9, 9]
    assert sums.to(td.float32 if dtype != "complex64" else td.complex64).tolist() == [
        [8, 10],
        [4, 6],
        [8, 9],
        [8, 9],
        [8, 9],
    ]


def test_coalesce_rows_has_gradients():
    check_op(
        lambda values: edges.coalesce_rows(*beside(values, [td.tensor([5, 2, 5])]), values)[1],
        lambda values: np.stack([values[1], values[0] + values[2], values[0] + values[2]]),
        inputs=[(sample(3, 2),)],
        names=["coalesce_rows"],
    )


def test_sums_do_not_depend_on_the_number_of_threads():
    m, n = 20_000, 50
    row, column = td.tensor(RNG.integers(0, n, m)), td.tensor(RNG.integers(0, n, m))
    places, x, values = structure(row, column, n, n), td.tensor(sample(n, 1, 33)), td.tensor(sample(m, 1))
    before, made = td.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            td.set_num_threads(threads)
            made.append(places.matmul(values, x).numpy())
    finally:
        td.set_num_threads(before)
    assert (made[0] == made[1]).all() and (made[0] == made[2]).all()
