"""QR, eigenvalues, singular values, and what comes from them. Gradients are those of functions that do not depend on signs."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_gradients, check_op

L = td.linalg


rng = np.random.default_rng(0)


TOLERANT = {"rtol": 2e-4, "atol": 2e-4}


def normal(*shape, dtype="float64"):
    return rng.normal(size=shape).astype(dtype)


def both(*cases):
    return [tuple(a.astype(d) for a in case) for case in cases for d in ("float64", "float32")]


def symmetric(x):
    return (x + td.matrix_transpose(x)) / 2


def weights(*shape):
    return td.tensor(np.random.default_rng(5).normal(size=shape))


SHAPES = ((3, 3), (2, 4, 3), (2, 3, 4))


def test_gradients_of_what_is_not_determined_are_nan():
    for function in (lambda x: L.qr(x, mode="complete").Q, lambda x: L.svd(x).U):
        x = td.tensor(normal(3, 2), requires_grad=True)
        function(x)[:, 2].sum().backward()
        assert np.isnan(x.grad.numpy()).all()


# -- eigenvalues


def test_eigh():
    x = normal(2, 3, 3)
    x = x + np.swapaxes(x, -1, -2)
    w, v = L.eigh(td.tensor(x))
    np.testing.assert_allclose(w.numpy(), np.linalg.eigvalsh(x), atol=1e-12)
    np.testing.assert_allclose((v @ td.diag_embed(w) @ v.mT).numpy(), x, atol=1e-12)
    check_op(L.eigvalsh, np.linalg.eigvalsh, inputs=both((x,), (np.zeros((0, 0)),)), grad=False, **TOLERANT)
    lower = L.eigh(td.tensor(np.tril(x))).eigenvalues
    upper = L.eigh(td.tensor(np.triu(x)), UPLO="U").eigenvalues
    np.testing.assert_allclose(lower.numpy(), upper.numpy(), atol=1e-12)
    with pytest.raises(td.ValueRangeError, match="UPLO"):
        L.eigh(td.eye(2), UPLO="x")


def test_gradients_of_eigh():
    x, mix = normal(2, 3, 3), weights(3, 3)
    check_gradients(lambda x: L.eigvalsh(symmetric(x)), [x])
    check_gradients(lambda x: L.eigh(symmetric(x)).eigenvalues, [x])

    def invariant(x):  # squares do not depend on the sign
        w, v = L.eigh(symmetric(x))
        return (v * v * mix).sum() + (w * w * w).sum()

    check_gradients(invariant, [x])


def test_eigh_with_equal_eigenvalues_has_gradients_where_the_choice_of_vectors_does_not_matter():
    def rebuilt(x):
        w, v = L.eigh(symmetric(x))
        return (v * w.unsqueeze(-2)) @ v.mT

    x = td.eye(3, dtype=td.float64).requires_grad_()
    (rebuilt(x) * weights(3, 3)).sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


# -- singular values


@pytest.mark.parametrize("shape", SHAPES)
def test_svd(shape):
    x = normal(*shape)
    for full in (False, True):
        u, s, vh = L.svd(td.tensor(x), full_matrices=full)
        expected = np.linalg.svd(x, full_matrices=full)
        assert [tuple(p.shape) for p in (u, s, vh)] == [p.shape for p in expected]
        np.testing.assert_allclose(s.numpy(), expected.S, atol=1e-12)
        k = s.shape[-1]
        np.testing.assert_allclose((u[..., :k] * s.unsqueeze(-2) @ vh[..., :k, :]).numpy(), x, atol=1e-12)
        np.testing.assert_allclose(
            (u.mT @ u).numpy(), np.broadcast_to(np.eye(u.shape[-1]), u.mT.shape[:-2] + (u.shape[-1],) * 2), atol=1e-12
        )
    m, n = shape[-2:]
    a, b = weights(m, min(m, n)), weights(min(m, n), n)

    def invariant(x, full=False):
        u, s, vh = L.svd(x, full_matrices=full)
        k = s.shape[-1]
        u, vh = u[..., :k], vh[..., :k, :]
        return (u * u * a).sum() + (vh * vh * b).sum() + (s * s).sum() + ((u @ vh) ** 2 * weights(m, n)).sum()

    check_gradients(invariant, [x])
    check_gradients(lambda x: invariant(x, True), [x], second=False)
    check_gradients(L.svdvals, [x])


def test_svd_of_nothing():
    u, s, vh = L.svd(td.zeros(2, 3, 0))
    assert u[1].tolist() == np.eye(3).tolist()
    assert (s.shape, vh.shape) == ((2, 0), (2, 0, 0))
    check_op(L.svdvals, lambda a: np.linalg.svd(a, compute_uv=False), inputs=both((normal(2, 3, 4),)), **TOLERANT)
    x = normal(3, 2)
    made = td.svd(td.tensor(x))
    np.testing.assert_allclose((made.U * made.S @ made.V.mT).numpy(), x, atol=1e-12)


def test_matrices_with_nan_are_named():
    x = td.tensor(np.stack([np.eye(2), np.full((2, 2), np.nan)]))
    for function in (L.svd, L.svdvals, L.eigh, L.eigvalsh):
        with pytest.raises(td.LinAlgError, match=r"matrix \[1\] of the batch holds NaN"):
            function(x)


# -- rank, pseudo-inverse, least squares


@pytest.mark.parametrize("shape", SHAPES)
def test_pinv(shape):
    check_op(L.pinv, np.linalg.pinv, inputs=both((normal(*shape),)), **TOLERANT)


def test_pinv_of_matrices_without_full_rank():
    low = normal(4, 2) @ normal(2, 3)
    np.testing.assert_allclose(L.pinv(td.tensor(low)).numpy(), np.linalg.pinv(low), atol=1e-10)
    np.testing.assert_allclose(td.pinverse(td.tensor(low), 1e-10).numpy(), np.linalg.pinv(low), atol=1e-10)
    sym = low @ low.T
    np.testing.assert_allclose(
        L.pinv(td.tensor(sym), hermitian=True, rtol=1e-10).numpy(), np.linalg.pinv(sym, rtol=1e-10), atol=1e-9
    )
    np.testing.assert_allclose(L.pinv(td.tensor(np.diag([1.0, 0.1])), atol=0.5).numpy(), np.diag([1.0, 0.0]))
    check_gradients(lambda a, b: L.pinv(td.matmul(a, b)), [normal(4, 2), normal(2, 3)])
    check_gradients(lambda x: L.pinv(symmetric(x), hermitian=True), [normal(3, 3)])
    assert L.pinv(td.zeros(2, 0)).shape == (0, 2)


def test_matrix_rank():
    low = normal(4, 2) @ normal(2, 3)
    x = np.stack([low, np.zeros((4, 3)), normal(4, 3)])
    np.testing.assert_array_equal(L.matrix_rank(td.tensor(x)).numpy(), np.linalg.matrix_rank(x))
    assert L.matrix_rank(td.tensor(np.diag([1.0, 0.1])), rtol=0.5).item() == 1
    assert L.matrix_rank(td.eye(3), hermitian=True).item() == 3
    assert L.matrix_rank(td.zeros(2, 0)).item() == 0


def test_lstsq():
    for a, b in (
        (normal(4, 3), normal(4, 2)),
        (normal(3, 4), normal(3, 2)),
        (normal(4, 2) @ normal(2, 3), normal(4, 2)),
    ):
        made = L.lstsq(td.tensor(a), td.tensor(b), rcond=1e-10)
        x, residuals, rank, s = np.linalg.lstsq(a, b, rcond=1e-10)
        np.testing.assert_allclose(made.solution.numpy(), x, atol=1e-10)
        np.testing.assert_allclose(made.singular_values.numpy(), s, atol=1e-10)
        assert made.rank.item() == rank
        if len(residuals):
            np.testing.assert_allclose(made.residuals.numpy(), residuals, atol=1e-10)
    check_gradients(lambda a, b: L.lstsq(a, b).solution, [normal(2, 4, 3), normal(4, 2)])
    check_gradients(lambda a, b: L.lstsq(a, b).solution, [normal(3, 4), normal(3)])
    assert L.lstsq(td.ones(5, 3), td.ones(5, 0)).solution.shape == (3, 0)
    assert L.lstsq(td.ones(3, 0), td.ones(3, 2)).solution.shape == (0, 2)
    with pytest.raises(td.ShapeError, match="same number of rows"):
        L.lstsq(td.ones(3, 2), td.ones(2, 2))
