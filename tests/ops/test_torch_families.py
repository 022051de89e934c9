"""Products, distances, integrals, counts and arrangements in PyTorch's spelling."""

import numpy as np
import pytest

import tandem as td
from tests.check import assert_close, check_op

RNG = np.random.default_rng(5)


NAN = float("nan")


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


def test_integers_and_parts_of_floats():
    x, y = RNG.integers(-40, 40, (4, 5)), RNG.integers(-40, 40, (4, 5))
    check_op(td.gcd, np.gcd, inputs=[(x, y), (x.astype("int8"), y.astype("int8")), (x, np.array(6))])
    check_op(td.lcm, np.lcm, inputs=[(x, y)])
    assert td.tensor([4]).gcd_(6).item() == 2 and td.tensor([4]).lcm_(6).item() == 12
    with pytest.raises(td.errors.DTypeError, match="gcd"):
        td.gcd(td.ones(2), td.ones(2))
    v = np.array([8.0, -0.3, 0.0, 1e-310, 3e300])
    mantissa, exponent = td.frexp(td.tensor(v))
    assert_close(mantissa, np.frexp(v)[0])
    assert_close(exponent, np.frexp(v)[1])
    check_op(td.ldexp, np.ldexp, inputs=[(normal(3), np.array([2, -3, 0]))])
    check_op(
        lambda a: td.frexp(a)[0], lambda a: np.frexp(a)[0], inputs=[(np.array([0.7, 3.1, -5.2]),)], names=["frexp"]
    )
    check_op(td.heaviside, np.heaviside, inputs=[(np.array([-1.0, 0.5, 2.0]), normal(3))])
    assert td.heaviside(td.zeros(1), 0.3).item() == pytest.approx(0.3)
    check_op(td.rsub, lambda a, b: b - a, inputs=[(normal(3), normal(3))])
    assert_close(td.sgn(td.tensor([-2.0, 0.0])), np.array([-1.0, 0.0]))
