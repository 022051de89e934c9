"""Norms and condition numbers of matrices."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_gradients, check_op

L = td.linalg


rng = np.random.default_rng(0)


def normal(*shape, dtype="float64"):
    return rng.normal(size=shape).astype(dtype)


# -- norms


def test_matrix_norm():
    x = normal(2, 3, 4)
    for ord in ("fro", "nuc", np.inf, -np.inf, 1, -1, 2, -2):
        check_op(
            L.matrix_norm,
            lambda a, ord=ord: np.linalg.matrix_norm(a, ord=ord),
            inputs=[(x,)],
            kwargs={"ord": ord},
            test_layouts=ord == "fro",
            deferred=ord in ("fro", 2),
        )
    assert L.matrix_norm(td.tensor(x), keepdims=True).shape == (2, 1, 1)
    np.testing.assert_allclose(
        L.matrix_norm(td.tensor(x), 1, (0, 1), keepdims=True).numpy(), np.linalg.norm(x, 1, (0, 1), keepdims=True)
    )
    for ord in ("fro", "nuc", np.inf, 1, 2):
        assert L.matrix_norm(td.zeros(0, 3), ord=ord).item() == 0
    with pytest.raises(td.ValueRangeError, match="ord"):
        L.matrix_norm(td.ones(2, 2), ord=3)


def test_norm():
    x = normal(3, 4)
    for kwargs in (
        {},
        {"ord": 1},
        {"ord": "nuc"},
        {"axis": 1},
        {"ord": 3, "axis": 0},
        {"axis": (0, 1)},
        {"ord": np.inf, "axis": (1, 0)},
    ):
        np.testing.assert_allclose(L.norm(td.tensor(x), **kwargs).numpy(), np.linalg.norm(x, **kwargs), rtol=1e-12)
    assert L.norm(td.ones(2, 3, 4)).item() == pytest.approx(24**0.5)
    check_gradients(L.norm, [x])
    with pytest.raises(td.ShapeError, match="1 or 2 axes"):
        L.norm(td.ones(2, 2, 2), 1)


def test_cond():
    x = normal(2, 3, 3)
    for p in (None, 2, -2, 1, -1, np.inf, "fro", "nuc"):
        np.testing.assert_allclose(L.cond(td.tensor(x), p).numpy(), np.linalg.cond(x, p), rtol=1e-9)
    assert L.cond(td.zeros(2, 2), 1).item() == np.inf
    check_gradients(L.cond, [x])
