"""Powers, exponentials and other products of matrices."""

import numpy as np
import pytest
import scipy.linalg

import tandem as td
from tests.check import check_gradients, check_op

L = td.linalg
rng = np.random.default_rng(0)


def normal(*shape, dtype="float64"):
    return rng.normal(size=shape).astype(dtype)


def test_matrix_exp():
    x = normal(2, 3, 3)
    check_op(
        L.matrix_exp,
        scipy.linalg.expm,
        inputs=[(x,), (x.astype("float32"),), (np.zeros((0, 0)),)],
        rtol=1e-4,
        atol=1e-5,
    )
    for scale in (1e-3, 0.05, 0.5, 1.5, 4.0, 30.0):
        a = x * scale
        for dtype, tolerance in (("float64", 1e-11), ("float32", 1e-3)):
            made, expected = td.matrix_exp(td.tensor(a.astype(dtype))).numpy(), scipy.linalg.expm(a)
            assert np.abs(made - expected).max() <= tolerance * np.abs(expected).max()
    assert np.isnan(td.matrix_exp(td.tensor([[np.inf]])).item())


def test_matrix_power():
    x = normal(2, 3, 3) + 2 * np.eye(3)
    for n in (0, 1, 2, 3, 7, -1, -2):
        np.testing.assert_allclose(L.matrix_power(td.tensor(x), n).numpy(), np.linalg.matrix_power(x, n), rtol=1e-9)
    check_gradients(lambda x: L.matrix_power(x, 3), [x])
    check_gradients(lambda x: td.matrix_power(x, -2), [x])
    assert L.matrix_power(td.tensor([[1, 1], [0, 1]]), 5).tolist() == [[1, 5], [0, 1]]
    with pytest.raises(td.ShapeError, match="square"):
        L.matrix_power(td.ones(2, 3), 2)


def test_multi_dot():
    parts = [normal(2, 3), normal(3, 4), normal(4, 5), normal(5, 2)]
    np.testing.assert_allclose(
        L.multi_dot([td.tensor(p) for p in parts]).numpy(), np.linalg.multi_dot(parts), rtol=1e-10
    )
    vectors = [parts[0][0], *parts[1:3], parts[3][:, 0].copy()]
    np.testing.assert_allclose(
        L.multi_dot([td.tensor(p) for p in vectors]).numpy(), np.linalg.multi_dot(vectors), rtol=1e-10
    )
    np.testing.assert_allclose(td.chain_matmul(*(td.tensor(p) for p in parts)).numpy(), np.linalg.multi_dot(parts))
    with pytest.raises(td.ShapeError, match="tensor 0 has 3 columns and tensor 1 has 2 rows"):
        L.multi_dot([td.ones(2, 3), td.ones(2, 3)])
    check_gradients(lambda a, b, c: L.multi_dot([a, b, c]), [normal(2, 3), normal(3, 2), normal(2)])


def test_cross():
    check_op(L.cross, np.linalg.cross, inputs=[(normal(2, 3), normal(2, 3)), (normal(4, 1, 3), normal(5, 3))])
    x, y = normal(3, 2), normal(3, 2)
    np.testing.assert_allclose(L.cross(td.tensor(x), td.tensor(y), axis=0).numpy(), np.cross(x, y, axis=0))
    np.testing.assert_allclose(td.cross(td.tensor(x), td.tensor(y), dim=0).numpy(), np.cross(x, y, axis=0))
    with pytest.raises(td.ShapeError, match="3 elements"):
        L.cross(td.ones(2), td.ones(2))


def test_diagonal_and_trace():
    x = normal(2, 3, 4)
    for offset in (-1, 0, 2):
        np.testing.assert_array_equal(
            L.diagonal(td.tensor(x), offset=offset).numpy(), np.linalg.diagonal(x, offset=offset)
        )
        np.testing.assert_allclose(L.trace(td.tensor(x), offset=offset).numpy(), np.linalg.trace(x, offset=offset))
    assert L.trace(td.ones(2, 2, dtype=td.int8)).dtype is td.int64
    assert L.trace(td.ones(2, 2), dtype=td.float64).dtype is td.float64
    check_gradients(L.trace, [x])
    assert td.trace(td.tensor([[1, 2], [3, 4]])).item() == 5


def test_vander():
    x = normal(2, 3)
    expected = np.stack([np.vander(row, 4, increasing=True) for row in x])
    np.testing.assert_allclose(L.vander(td.tensor(x), 4).numpy(), expected)
    np.testing.assert_allclose(td.vander(td.tensor(x[0])).numpy(), np.vander(x[0]))
    np.testing.assert_allclose(
        td.vander(td.tensor(x[0]), 2, increasing=True).numpy(), np.vander(x[0], 2, increasing=True)
    )
    check_gradients(lambda x: L.vander(x, 4), [x])


def test_the_namespace_is_complete():
    standard = (
        "cholesky cross det diagonal eig eigh eigvals eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose "
        "outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm"
    )
    torch = (
        "norm cond lstsq solve_triangular lu lu_factor lu_factor_ex lu_solve matrix_exp multi_dot householder_product "
        "cholesky_ex inv_ex solve_ex vander tensorinv tensorsolve"
    )
    for name in (standard + " " + torch).split():
        assert name in L.__all__
        assert getattr(L, name).__doc__
    assert sorted(L.__all__) == L.__all__


def test_matrix_exp_of_16_bit_floats_is_that_of_float32_rounded():
    x = np.random.default_rng(4).normal(size=(3, 3)).astype("float32")
    for dtype in (td.float16, td.bfloat16):
        rounded = td.tensor(x).to(dtype)
        made = td.linalg.matrix_exp(rounded)
        assert made.dtype is dtype and (made == td.linalg.matrix_exp(rounded.float()).to(dtype)).all()
