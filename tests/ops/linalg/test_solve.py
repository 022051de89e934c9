"""Systems of equations, inverses, determinants, triangular factors."""

import numpy as np
import pytest
import scipy.linalg

import tandem as td
from tests.check import check_gradients, check_op
from tests.ops.linalg.matrices import both

L = td.linalg


rng = np.random.default_rng(0)


def normal(*shape, dtype="float64"):
    return rng.normal(size=shape).astype(dtype)


def regular(*shape, dtype="float64"):
    """Matrices far from singular."""
    return (rng.normal(size=shape) + 3 * np.eye(shape[-1])).astype(dtype)


def positive(*shape, dtype="float64"):
    a = rng.normal(size=shape)
    return (a @ np.swapaxes(a, -1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def swap(a):
    return np.swapaxes(a, -1, -2)


TOLERANT = {"rtol": 2e-4, "atol": 2e-4}


def test_inv():
    cases = both(
        (regular(3, 3),), (regular(2, 2, 3, 3),), (regular(1, 1),), (np.zeros((0, 0)),), (np.zeros((0, 2, 2)),)
    )
    check_op(L.inv, np.linalg.inv, inputs=cases, **TOLERANT)
    assert td.inverse is L.inv
    np.testing.assert_allclose(td.tensor([[2.0]]).inverse().numpy(), [[0.5]])


def test_inv_ex_tells_which_matrices_have_none():
    x = td.tensor(np.stack([np.eye(2), np.zeros((2, 2))]))
    made = L.inv_ex(x)
    np.testing.assert_array_equal([0, 1], made.info.numpy())
    np.testing.assert_array_equal(np.eye(2), made.inverse[0].numpy())
    with pytest.raises(td.LinAlgError, match=r"matrix \[1\] of the batch"):
        L.inv_ex(x, check_errors=True)


def test_solve():
    cases = both(
        (regular(3, 3), normal(3, 2)), (regular(2, 3, 3), normal(4, 1, 3, 2)), (np.zeros((0, 0)), np.zeros((0, 2)))
    )
    check_op(L.solve, np.linalg.solve, inputs=cases, **TOLERANT)
    check_op(
        L.solve,
        lambda a, b: np.linalg.solve(a, b[:, None])[..., 0],
        inputs=both((regular(2, 3, 3), normal(3))),
        **TOLERANT,
    )
    right = [(regular(2, 3, 3), normal(2, 3))]
    check_op(
        L.solve,
        lambda a, b: swap(np.linalg.solve(swap(a), swap(b))),
        inputs=right,
        kwargs={"left": False},
        deferred=False,
    )
    assert L.solve_ex(td.zeros(1, 1), td.ones(1)).info.item() == 1


def test_a_singular_matrix_is_named():
    x = td.tensor(np.stack([np.eye(3), np.ones((3, 3))])[None])
    for function in (L.inv, lambda x: L.solve(x, td.ones(3, 1, dtype=td.float64))):
        with pytest.raises(td.LinAlgError, match=r"matrix \[0, 1\] of the batch \(3, 3\) is singular"):
            function(x)
    assert issubclass(td.LinAlgError, ValueError)
    assert issubclass(td.LinAlgError, RuntimeError)
    with pytest.raises(td.LinAlgError, match=r"the matrix .* is singular"):
        L.inv(x[0, 1])


def test_shapes_and_types_are_checked():
    with pytest.raises(td.ShapeError, match=r"x is \(2, 3\); its matrices must be square"):
        L.inv(td.ones(2, 3))
    with pytest.raises(td.ShapeError, match="the rows of B"):
        L.solve(td.eye(3), td.ones(2, 2))
    with pytest.raises(td.DTypeError, match="float16"):
        L.det(td.ones(2, 2).to(td.float16))
    assert L.det(td.eye(2, dtype=td.int64)).dtype is td.float32


def test_lu():
    for shape in ((3, 3), (2, 4, 3), (2, 3, 4)):
        x = td.tensor(normal(*shape))
        p, l, u = L.lu(x)
        np.testing.assert_allclose((p @ l @ u).numpy(), x.numpy(), atol=1e-12)
        expected = [np.stack(part) for part in zip(*(scipy.linalg.lu(m) for m in x.numpy().reshape(-1, *shape[-2:])))]
        for actual, part in zip((p, l, u), expected):
            np.testing.assert_allclose(actual.numpy().reshape(part.shape), part, atol=1e-12)
        check_gradients(lambda x: L.lu(x)[1:], [x.numpy()])
        check_gradients(lambda x: L.lu_factor(x).LU, [x.numpy()])
    assert L.lu_factor_ex(td.zeros(2, 1, 1)).info.tolist() == [1, 1]
    with pytest.raises(td.UnsupportedError):
        L.lu(td.eye(2), pivot=False)


def test_lu_solve():
    a, b = regular(2, 3, 3), normal(2, 3, 2)
    for adjoint in (False, True):
        for left in (False, True):
            given = b if left else swap(b).copy()
            matrix = swap(a) if adjoint == left else a
            expected = np.linalg.solve(matrix, b)
            expected = expected if left else swap(expected)
            made = L.lu_solve(*L.lu_factor(td.tensor(a)), td.tensor(given), left=left, adjoint=adjoint)
            np.testing.assert_allclose(made.numpy(), expected, atol=1e-10)
    check_gradients(lambda a, b: L.lu_solve(*L.lu_factor(a), b), [a, b])
    np.testing.assert_allclose(
        td.lu_solve(td.tensor(b), *L.lu_factor(td.tensor(a))).numpy(), np.linalg.solve(a, b), atol=1e-10
    )
    with pytest.raises(td.IndexRangeError, match="pivot 9"):
        L.lu_solve(td.eye(2), td.tensor([1, 9], dtype=td.int32), td.ones(2, 1))


def test_det():
    cases = both((regular(3, 3),), (normal(2, 2, 4, 4),), (normal(1, 1),))
    check_op(L.det, np.linalg.det, inputs=cases, **TOLERANT)
    assert L.det(td.zeros(2, 0, 0)).tolist() == [1.0, 1.0]
    assert td.det is L.det


def test_det_has_a_gradient_at_singular_matrices():
    for x in (np.array([[1.0, 2.0], [2.0, 4.0]]), np.ones((3, 3)), np.zeros((2, 2))):
        check_gradients(L.det, [x], second=False)


def test_slogdet():
    x = regular(2, 3, 3)
    check_op(L.slogdet, lambda a: tuple(np.linalg.slogdet(a)), inputs=[(x,), (x.astype("float32"),)], **TOLERANT)
    assert L.slogdet(td.zeros(0, 0)) == (1.0, 0.0)
    made = td.slogdet(td.zeros(2, 2))
    assert (made.sign.item(), made.logabsdet.item()) == (0.0, -np.inf)
    check_op(td.logdet, lambda a: np.linalg.slogdet(a)[1], inputs=[(positive(2, 3, 3),)])
    assert np.isnan(td.logdet(td.tensor([[-1.0]])).item())


def test_tensorinv_and_tensorsolve():
    x = normal(4, 6, 8, 3)
    np.testing.assert_allclose(L.tensorinv(td.tensor(x)).numpy(), np.linalg.tensorinv(x), atol=1e-10)
    a, b = normal(2, 3, 6), normal(2, 3)
    np.testing.assert_allclose(
        L.tensorsolve(td.tensor(a), td.tensor(b)).numpy(), np.linalg.tensorsolve(a, b), atol=1e-10
    )
    a = normal(2, 6, 3)
    np.testing.assert_allclose(
        L.tensorsolve(td.tensor(a), td.tensor(b), axes=(1,)).numpy(), np.linalg.tensorsolve(a, b, axes=(1,)), atol=1e-10
    )
    with pytest.raises(td.ShapeError):
        L.tensorinv(td.ones(2, 3))


def test_many_threads_and_strides_give_the_same():
    x = td.tensor(regular(64, 8, 8))
    np.testing.assert_array_equal(L.inv(x)[::2].numpy(), L.inv(x[::2]).numpy())
    np.testing.assert_array_equal(L.inv(x).mT.contiguous().numpy().shape, (64, 8, 8))


def test_lu_in_pytorchs_older_form():
    x = td.tensor(normal(2, 3, 4))
    packed, pivots, infos = td.lu(x, get_infos=True)
    assert infos.tolist() == [0, 0]
    p, l, u = td.lu_unpack(packed, pivots)
    np.testing.assert_allclose((p @ l @ u).numpy(), x.numpy(), atol=1e-12)
    assert td.lu_unpack(packed, pivots, unpack_data=False).L.shape == (0,)
    check_gradients(lambda x: td.lu_unpack(*x.lu())[1:], [normal(3, 3)])
