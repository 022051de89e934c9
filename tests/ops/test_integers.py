"""Common divisors, and parts of floating-point numbers."""

import numpy as np
import pytest

import tandem as td
from tests.check import assert_close, check_op

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.normal(size=shape)


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
