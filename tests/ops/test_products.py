"""Products of matrices and vectors by their older names."""

import numpy as np
import pytest

import tandem as td
from tests.check import assert_close, check_op

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.normal(size=shape)


def test_products():
    b1, b2 = normal(2, 3, 4), normal(2, 4, 2)
    check_op(td.addbmm, lambda x, a, b: 0.5 * x + 2 * np.einsum("bij,bjk->ik", a, b), inputs=[(normal(3, 2), b1, b2)],
             kwargs={"beta": 0.5, "alpha": 2})  # fmt: skip
    check_op(td.addr, lambda x, a, b: x + np.outer(a, b), inputs=[(normal(3, 2), normal(3), normal(2))])
    check_op(td.inner, np.inner, inputs=[(normal(3, 4), normal(2, 4)), (normal(3), np.array(2.0))])
    check_op(td.kron, np.kron, inputs=[(normal(2, 3), normal(2, 2)), (normal(2), normal(2, 3))])
    with pytest.raises(td.errors.ShapeError, match="addbmm"):
        td.addbmm(td.ones(3, 2), td.ones(2, 3, 4), td.ones(3, 4, 2))
    with pytest.raises(td.errors.ShapeError, match="inner"):
        td.inner(td.ones(3), td.ones(4))
    x, y = td.ones(2, 2), td.full((1, 3), 2.0)
    expected = np.block([[np.ones((2, 2)), np.zeros((2, 3))], [np.zeros((1, 2)), np.full((1, 3), 2.0)]])
    assert_close(td.block_diag(x, y), expected)
    assert td.block_diag().shape == (1, 0)
    mats = [normal(*s) for s in ((2, 5), (5, 3), (3, 7), (7, 1))]
    assert_close(td.chain_matmul(*[td.tensor(m) for m in mats]), np.linalg.multi_dot(mats))
    z = td.ones(3, 2)
    assert z.addbmm_(td.ones(2, 3, 4), td.ones(2, 4, 2)) is z and float(z[0, 0]) == 9
    assert float(td.zeros(2, 2).addr_(td.ones(2), td.ones(2)).sum()) == 4
