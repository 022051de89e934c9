"""Linear algebra of complex matrices: values against NumPy's, gradients by finite differences in both parts."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_gradients, check_op

L = td.linalg
rng = np.random.default_rng(0)
TOLERANT = {"rtol": 2e-4, "atol": 2e-4}


def normal(*shape, shift=0.0):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape) + shift * np.eye(*shape[-2:])


def both(*cases):
    return [tuple(a.astype(d) for a in case) for case in cases for d in ("complex128", "complex64")]


def adjoint(x):
    return np.swapaxes(x, -1, -2).conj()


def hermitian(x):
    return (x + td.conj(td.matrix_transpose(x))) / 2


def positive(x):
    return td.matmul(x, td.conj(td.matrix_transpose(x))) + 3 * td.eye(x.shape[-1], dtype=x.dtype)


def test_solutions():
    a, b = normal(2, 3, 3, shift=3), normal(2, 3, 2)
    check_op(L.solve, np.linalg.solve, inputs=both((a, b)), **TOLERANT)
    check_op(L.inv, np.linalg.inv, inputs=both((a,)), **TOLERANT)
    np.testing.assert_allclose(
        L.solve(td.tensor(a), td.tensor(adjoint(b)), left=False).numpy(),
        adjoint(np.linalg.solve(adjoint(a), b)),
        atol=1e-12,
    )
    check_gradients(lambda a, b: L.solve(a, b, left=False), [a[0], adjoint(b[0]).copy()])
    for left in (False, True):
        for flag in (False, True):
            given = b if left else adjoint(b).copy()
            made = L.lu_solve(*L.lu_factor(td.tensor(a)), td.tensor(given), left=left, adjoint=flag).numpy()
            matrix = adjoint(a) if flag else a
            np.testing.assert_allclose(matrix @ made if left else made @ matrix, given, atol=1e-12)
    check_gradients(lambda a, b: L.lu_solve(*L.lu_factor(a), b), [a[0], b[0]])
    check_gradients(lambda a, b: L.solve_triangular(a, b, upper=True), [a[0], b[0]])


def test_determinants():
    a = normal(2, 3, 3, shift=1)
    check_op(L.det, np.linalg.det, inputs=both((a,)), **TOLERANT)
    check_op(L.slogdet, lambda a: tuple(np.linalg.slogdet(a)), inputs=both((a,)), **TOLERANT)
    check_gradients(L.det, [np.array([[1, 2j], [1j, -2]])], second=False)  # singular


def test_lu_and_cholesky():
    for shape in ((3, 3), (4, 3), (3, 4)):
        x = normal(*shape)
        p, l, u = L.lu(td.tensor(x))
        np.testing.assert_allclose((p @ l @ u).numpy(), x, atol=1e-12)
        check_gradients(lambda x: L.lu_factor(x).LU, [x])
    x = normal(2, 3, 3)
    a = positive(td.tensor(x))
    np.testing.assert_allclose(L.cholesky(a).numpy(), np.linalg.cholesky(a.numpy()), atol=1e-12)
    np.testing.assert_allclose(L.cholesky(a, upper=True).numpy(), adjoint(np.linalg.cholesky(a.numpy())), atol=1e-12)
    check_gradients(lambda x: L.cholesky(positive(x)), [x[0]])


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4)])
def test_qr(shape):
    x = normal(*shape)
    q, r = L.qr(td.tensor(x))
    np.testing.assert_allclose(q.numpy(), np.linalg.qr(x).Q, atol=1e-12)
    np.testing.assert_allclose(r.numpy(), np.linalg.qr(x).R, atol=1e-12)

    def invariant(x):  # of the phases of columns of q
        q, r = L.qr(x)
        return td.abs(q) ** 2, td.abs(r) ** 2, q @ r

    check_gradients(invariant, [x])


def test_eigh():
    x = normal(2, 3, 3)
    a = hermitian(td.tensor(x))
    w, v = L.eigh(a)
    np.testing.assert_allclose(w.numpy(), np.linalg.eigvalsh(a.numpy()), atol=1e-12)
    np.testing.assert_allclose((a @ v).numpy(), (v * w.unsqueeze(-2)).numpy(), atol=1e-12)
    assert w.dtype is td.float64

    def invariant(x):
        w, v = L.eigh(hermitian(x))
        return w, td.abs(v) ** 2

    check_gradients(invariant, [x[0]])
    check_gradients(lambda x: L.eigvalsh(hermitian(x)), [x[0]])


def test_eig():
    for x in (rng.normal(size=(2, 4, 4)), normal(2, 3, 3)):
        w, v = L.eig(td.tensor(x))
        np.testing.assert_allclose((td.tensor(x) + 0j) @ v, (v * w.unsqueeze(-2)).numpy(), atol=1e-10)
        np.testing.assert_allclose(np.sort_complex(w.numpy()), np.sort_complex(np.linalg.eigvals(x)), atol=1e-10)
        np.testing.assert_allclose(
            np.sort_complex(L.eigvals(td.tensor(x)).numpy()), np.sort_complex(w.numpy()), atol=1e-10
        )
    assert L.eig(td.ones(2, 2)).eigenvectors.dtype is td.complex64
    assert L.eig(td.zeros(0, 0)).eigenvalues.shape == (0,)


def test_gradients_of_eig():
    for x in (rng.normal(size=(4, 4)), normal(3, 3)):
        weights = td.tensor(rng.normal(size=x.shape))

        def invariant(x, weights=weights):  # of the order and the phases
            w, v = L.eig(x)
            return (w**3).sum(), (td.abs(v) ** 2 * td.abs(w) ** 2 * weights[:, :1]).sum()

        check_gradients(invariant, [x])
        check_gradients(lambda x: (L.eigvals(x) ** 2).sum(), [x])


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4)])
def test_svd(shape):
    x = normal(*shape)
    u, s, vh = L.svd(td.tensor(x), full_matrices=False)
    np.testing.assert_allclose(((u * s.unsqueeze(-2)) @ vh).numpy(), x, atol=1e-12)
    np.testing.assert_allclose(L.svdvals(td.tensor(x)).numpy(), np.linalg.svd(x).S, atol=1e-12)
    assert s.dtype is td.float64

    def invariant(x):
        u, s, vh = L.svd(x, full_matrices=False)
        return td.abs(u) ** 2, s, td.abs(vh) ** 2, u @ vh

    check_gradients(invariant, [x])
    check_op(L.pinv, np.linalg.pinv, inputs=both((x,)), **TOLERANT)


def test_the_rest():
    x = normal(3, 3)
    import scipy.linalg

    check_op(L.matrix_exp, scipy.linalg.expm, inputs=both((x,)), **TOLERANT)
    check_gradients(lambda x: L.matrix_power(x, -2), [x])
    a, b = normal(4, 3), normal(4, 2)
    np.testing.assert_allclose(
        L.lstsq(td.tensor(a), td.tensor(b)).solution.numpy(), np.linalg.lstsq(a, b)[0], atol=1e-12
    )
    check_gradients(lambda a, b: L.lstsq(a, b).solution, [a, b], second=False)
    for ord in ("fro", "nuc", np.inf, -np.inf, 1, -1, 2, -2):
        made = L.matrix_norm(td.tensor(x), ord=ord)
        assert made.dtype is td.float64
        np.testing.assert_allclose(made.numpy(), np.linalg.matrix_norm(x, ord=ord))
    for ord in (0, 1, 2, 3, np.inf, -np.inf):
        np.testing.assert_allclose(L.vector_norm(td.tensor(x[0]), ord).numpy(), np.linalg.vector_norm(x[0], ord=ord))
        check_gradients(lambda x, ord=ord: L.vector_norm(x, ord), [x[0]])
    tau = normal(3, 1)[:, 0].copy()
    check_gradients(L.householder_product, [normal(4, 3), tau])
    assert L.matrix_rank(td.tensor(x)).item() == 3
    np.testing.assert_allclose(L.cond(td.tensor(x)).numpy(), np.linalg.cond(x))
