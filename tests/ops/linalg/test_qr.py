"""QR, and products of reflections."""

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


SHAPES = ((3, 3), (2, 4, 3), (2, 3, 4))


# -- QR


@pytest.mark.parametrize("shape", SHAPES)
def test_qr(shape):
    x = normal(*shape)
    for mode in ("reduced", "complete"):
        q, r = L.qr(td.tensor(x), mode=mode)
        expected = np.linalg.qr(x, mode=mode)
        np.testing.assert_allclose(q.numpy(), expected.Q, atol=1e-12)
        np.testing.assert_allclose(r.numpy(), expected.R, atol=1e-12)
    made = L.qr(td.tensor(x), mode="r")
    np.testing.assert_allclose(made.R.numpy(), np.linalg.qr(x, mode="r"), atol=1e-12)
    assert made.Q.shape == (0,)
    check_gradients(L.qr, [x])
    check_gradients(lambda x: L.qr(x, mode="r").R, [x])
    check_gradients(lambda x: L.qr(x, mode="complete").R, [x])


def test_qr_in_other_layouts_and_modes_of_running():
    check_op(L.qr, lambda a: tuple(np.linalg.qr(a)), inputs=both((normal(2, 4, 3),)), **TOLERANT)
    assert td.qr(td.ones(3, 2), some=False).Q.shape == (3, 3)
    assert L.qr(td.zeros(3, 0), mode="complete").Q.tolist() == np.eye(3).tolist()
    assert L.qr(td.zeros(0, 3)).R.shape == (0, 3)


def test_modes_of_qr_are_checked():
    with pytest.raises(td.ValueRangeError, match="mode"):
        L.qr(td.ones(2, 2), mode="full")


def test_householder_product():
    x = normal(2, 4, 3)
    a, tau = td.geqrf(td.tensor(x))
    np.testing.assert_allclose(L.householder_product(a, tau).numpy(), np.linalg.qr(x).Q, atol=1e-12)
    np.testing.assert_allclose(td.orgqr(a, tau[:, :2]).shape, (2, 4, 3))
    check_gradients(L.householder_product, [normal(4, 3), normal(2)])
    with pytest.raises(td.ShapeError, match="m >= n >= k"):
        L.householder_product(td.ones(2, 3), td.ones(2))


def test_ormqr():
    x, other = normal(4, 3), normal(4, 2)
    a, tau = td.geqrf(td.tensor(x))
    q = np.linalg.qr(x, mode="complete").Q
    for transpose in (False, True):
        matrix = q.T if transpose else q
        made = td.ormqr(a, tau, td.tensor(other), transpose=transpose)
        np.testing.assert_allclose(made.numpy(), matrix @ other, atol=1e-12)
        made = td.ormqr(a, tau, td.tensor(other.T.copy()), left=False, transpose=transpose)
        np.testing.assert_allclose(made.numpy(), other.T @ matrix, atol=1e-12)
    check_gradients(lambda a, t, o: td.ormqr(a, t, o), [normal(3, 2), normal(2), normal(3, 2)])
