"""Triangular systems and Cholesky factors."""

import numpy as np
import pytest

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


def test_solve_triangular():
    for upper in (False, True):
        for left in (False, True):
            for unit in (False, True):
                a, b = regular(2, 3, 3), normal(2, 3, 3)

                def reference(a, b, upper=upper, left=left, unit=unit):
                    a = np.triu(a) if upper else np.tril(a)
                    if unit:
                        a = a - a * np.eye(3) + np.eye(3)
                    return np.linalg.solve(a, b) if left else swap(np.linalg.solve(swap(a), swap(b)))

                check_op(
                    L.solve_triangular,
                    reference,
                    inputs=[(a, b)],
                    kwargs={"upper": upper, "left": left, "unitriangular": unit},
                    test_layouts=upper and left,
                    deferred=upper and left,
                    second=left != unit,
                )


def through_symmetric(function):
    """Of a symmetric positive definite matrix made from any one, so that finite differences stay among them."""
    return lambda x: function(td.matmul(x, td.matrix_transpose(x)) + 3 * td.eye(3, dtype=x.dtype))


def test_cholesky():
    check_op(L.cholesky, np.linalg.cholesky, inputs=both((positive(2, 3, 3),), (positive(1, 1),), (np.zeros((0, 0)),)), grad=False,
             **TOLERANT)  # fmt: skip
    check_gradients(through_symmetric(L.cholesky), [normal(2, 3, 3)])
    check_gradients(through_symmetric(lambda x: L.cholesky(x, upper=True)), [normal(3, 3)])
    x = positive(3, 3)
    np.testing.assert_allclose(L.cholesky(td.tensor(x), upper=True).numpy(), np.linalg.cholesky(x).T, atol=1e-12)
    assert td.cholesky is L.cholesky


def test_a_matrix_without_cholesky_factor_is_named():
    x = td.tensor(np.stack([np.eye(2), np.diag([1.0, -1.0])]))
    with pytest.raises(td.LinAlgError, match=r"matrix \[1\] of the batch \(2, 2\) is not positive definite.*order 2"):
        L.cholesky(x)
    assert L.cholesky_ex(x).info.tolist() == [0, 2]


def test_cholesky_solve_and_inverse():
    a, b = positive(2, 3, 3), normal(2, 3, 2)
    for upper in (False, True):
        factor = L.cholesky(td.tensor(a), upper=upper)
        np.testing.assert_allclose(
            td.cholesky_solve(td.tensor(b), factor, upper=upper).numpy(), np.linalg.solve(a, b), atol=1e-12
        )
        np.testing.assert_allclose(td.cholesky_inverse(factor, upper=upper).numpy(), np.linalg.inv(a), atol=1e-12)
    check_gradients(through_symmetric(lambda x: L.cholesky_inverse(L.cholesky(x))), [normal(3, 3)])
