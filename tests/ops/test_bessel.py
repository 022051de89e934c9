"""Bessel and Airy functions."""

import numpy as np
import scipy.special as S

import tandem as td
from tests.check import assert_close


def test_airy_and_bessel_far_out():
    x = np.array([-90.0, -25.0, -10.0, -2.0, 0.0, 2.0, 10.0, 25.0])
    assert_close(td.special.airy_ai(td.tensor(x)), S.airy(x)[0], rtol=1e-10, atol=1e-13)
    for n in range(2, 5):  # only derivatives reach these orders
        for kind, reference in (("i_scaled", S.ive), ("k_scaled", S.kve), ("j", S.jv)):
            y = np.array([0.01, 0.5, 3.0, 8.0, 60.0, 900.0])
            got = BESSEL(td.tensor(y), kind, n)
            assert_close(got, reference(n, y), rtol=1e-11, atol=1e-13)
        assert_close(BESSEL(td.tensor(y), "spherical_j", n), S.spherical_jn(n, y), rtol=1e-9, atol=1e-13)


@td.ops.define.op(hidden=True)
def BESSEL(x: "Tensor", kind, n):  # noqa: F821
    return td.ops.Bessel(kind, n)(x)
