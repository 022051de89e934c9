"""LDL factors of symmetric matrices."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_gradients

L = td.linalg


rng = np.random.default_rng(0)


def normal(*shape, dtype="float64"):
    return rng.normal(size=shape).astype(dtype)


def swap(a):
    return np.swapaxes(a, -1, -2)


def test_ldl():
    for x in (normal(2, 4, 4), normal(2, 4, 4) + 1j * normal(2, 4, 4)):
        for hermitian in (False, True):
            a = x + (swap(x).conj() if hermitian else swap(x))
            b = (x[..., :2] * 2).copy()
            factors = L.ldl_factor(td.tensor(a), hermitian=hermitian)
            made = L.ldl_solve(*factors, td.tensor(b), hermitian=hermitian)
            np.testing.assert_allclose(a @ made.numpy(), b, atol=1e-10)
            check_gradients(lambda b, f=factors, h=hermitian: L.ldl_solve(*f, b, hermitian=h), [b])
    assert L.ldl_factor_ex(td.zeros(2, 1, 1)).info.tolist() == [1, 1]
    with pytest.raises(td.LinAlgError, match="singular"):
        L.ldl_factor_ex(td.zeros(1, 1), check_errors=True)
    with pytest.raises(td.IndexRangeError, match="pivots are not those"):
        L.ldl_solve(td.eye(2), td.tensor([-1, 2], dtype=td.int32), td.ones(2, 1))
