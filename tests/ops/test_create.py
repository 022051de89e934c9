"""Tensors made of numbers: constants, ramps, grids, triangles, diagonals."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_op


@pytest.mark.parametrize(
    "args",
    [(5,), (0,), (2, 7), (7, 2), (1, 10, 3), (10, 1, -3), (0.0, 1.0, 0.1), (1.0, 0.0, -0.25), (-2, 3), (0, 1, 0.3), (5, 5),
     (1, 2.5), (2**53, 2**53 + 5), (-(2**62), 2**62, 2**61)],
)  # fmt: skip
def test_arange(args):
    got, expected = td.arange(*args), np.arange(*args)
    assert got.dtype is (td.int64 if expected.dtype == np.int64 else td.float32)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6, atol=1e-7)


def test_arange_forms():
    assert td.arange(3, dtype="float64").dtype is td.float64 and td.arange(3, dtype=td.uint8).tolist() == [0, 1, 2]
    assert td.arange(td.tensor(3)).tolist() == [0, 1, 2] and td.arange(np.int64(1), np.int64(3)).tolist() == [1, 2]
    assert td.arange(2.0, requires_grad=True).requires_grad
    np.testing.assert_array_equal(
        td.arange(0.5, 4.0, 1.5, dtype="int32").numpy(), np.arange(0.5, 4.0, 1.5, dtype="int32")
    )
    with pytest.raises(td.ValueRangeError, match="step is 0"):
        td.arange(0, 3, 0)


@pytest.mark.parametrize("args", [(0, 1, 5), (0, 1, 1), (0, 1, 0), (3, -3, 7), (0.1, 0.7, 100), (1, 1, 4)])
def test_linspace(args):
    for endpoint in (True, False):
        got, expected = td.linspace(*args, endpoint=endpoint), np.linspace(*args, endpoint=endpoint)
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6, atol=1e-7)
    if args[2] > 1:
        assert td.linspace(*args)[-1].item() == np.float32(args[1])
    assert td.linspace(*args, dtype="float64").dtype is td.float64


def test_logspace():
    np.testing.assert_allclose(td.logspace(-1, 2, 7).numpy(), np.logspace(-1, 2, 7), rtol=1e-6)
    np.testing.assert_allclose(td.logspace(0, 4, 5, base=2.0).numpy(), [1, 2, 4, 8, 16])


def test_constants():
    assert td.zeros(2, 3).tolist() == [[0, 0, 0]] * 2 and td.ones((2,)).tolist() == [1, 1]
    assert (
        td.full((2,), 7).dtype is td.int64
        and td.full((2,), True).dtype is td.bool
        and td.full((2,), 1.5).dtype is td.float32
    )
    assert td.full(2, 3.0, dtype="int32").tolist() == [3, 3] and td.full((), 4).item() == 4
    x = td.tensor([[1.5, 2.5]])
    assert td.zeros_like(x).tolist() == [[0, 0]] and td.ones_like(x, dtype="int8").dtype is td.int8
    assert td.full_like(x, 3).tolist() == [[3, 3]] and td.empty_like(x).shape == (1, 2)
    assert td.zeros_like(x, requires_grad=True).requires_grad and td.full((2,), 1.0, requires_grad=True).is_leaf
    assert x.new_zeros(2).dtype is td.float32 and x.new_ones((2, 2)).tolist() == [[1, 1], [1, 1]]
    assert (
        x.new_full((1,), 5).tolist() == [5.0] and x.new_tensor([1]).dtype is td.float32 and x.new_empty(3).shape == (3,)
    )
    with pytest.raises(td.ShapeError, match="negative"):
        td.zeros(-1)
    with pytest.raises(td.DeviceError):
        td.zeros_like(x, device="cuda:7")


def test_eye():
    for n, m, k in [(3, None, 0), (2, 4, 0), (4, 2, 1), (3, 3, -1), (0, 3, 0), (2, 2, 5)]:
        np.testing.assert_array_equal(td.eye(n, m, k=k).numpy(), np.eye(n, m, k))
    assert td.eye(2, dtype="bool").tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize("k", [0, 1, -1, 5, -5])
def test_triangles(k):
    for name in ("tril", "triu"):
        check_op(getattr(td, name), lambda x, name=name: getattr(np, name)(x, k), shapes=[(3, 4), (2, 3, 3), (0, 2)],
                 kwargs={"k": k}, grad=k == 1, test_layouts=k == 0)  # fmt: skip
        np.testing.assert_array_equal(td.tril_indices(3, 4, k).numpy(), np.array(np.tril_indices(3, k, 4)))
        np.testing.assert_array_equal(td.triu_indices(3, 4, k).numpy(), np.array(np.triu_indices(3, k, 4)))


@pytest.mark.parametrize("k", [0, 1, -1, 2, -3, 7])
def test_diagonals(k):
    check_op(
        td.diagonal, lambda x: np.diagonal(x, k), shapes=[(3, 4), (4, 3), (3, 4, 2)], kwargs={"offset": k}, grad=k == 1
    )
    check_op(
        td.diag, lambda x: np.diag(x, k), shapes=[(3,), (3, 4)], kwargs={"k": k}, grad=k in (1, -1), test_layouts=False
    )
    x = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(td.diagonal(td.tensor(x), k, 1, 2).numpy(), np.diagonal(x, k, 1, 2))
    np.testing.assert_array_equal(td.diagonal(td.tensor(x), k, -1, 0).numpy(), np.diagonal(x, k, -1, 0))


def test_diagonal_is_a_view():
    x = td.zeros((3, 3))
    td.diagonal(x).fill_(1)
    assert td.array_equal(x, td.eye(3))
    assert td.diag_embed(td.tensor([[1, 2], [3, 4]])).tolist() == [[[1, 0], [0, 2]], [[3, 0], [0, 4]]]
    check_op(td.diag_embed, lambda a: np.stack([np.diag(r, 1) for r in a]), shapes=[(2, 3)], kwargs={"offset": 1})
    assert td.tensor([[1, 2], [3, 4]]).trace().item() == 5


def test_meshgrid():
    a, b, c = np.arange(2), np.arange(3.0), np.arange(4)
    for indexing in ("xy", "ij"):
        for arrays in ((a,), (a, b), (a, b, c)):
            got = td.meshgrid(*(td.tensor(v) for v in arrays), indexing=indexing)
            for g, e in zip(got, np.meshgrid(*arrays, indexing=indexing), strict=True):
                np.testing.assert_array_equal(g.numpy(), e)
