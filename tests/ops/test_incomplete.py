"""Incomplete gamma functions, zeta, and what is made of them."""

import numpy as np
import pytest
import scipy.special as S

import tandem as td
from tests.check import assert_close, check_op

RNG = np.random.default_rng(11)


X = RNG.uniform(-8, 8, (3, 4))


POSITIVE = RNG.uniform(0.2, 9, (3, 4))


def test_incomplete_gamma_functions():
    a = RNG.uniform(0.3, 6, (3, 4))
    x = RNG.uniform(0.1, 9, (3, 4))
    check_op(td.igamma, S.gammainc, inputs=[(a, x)], rtol=1e-11)
    check_op(td.igammac, S.gammaincc, inputs=[(a, x)], rtol=1e-11)
    # a large, at and beside the bend; and the ends
    a = np.array([200.0, 200.0, 3000.0, 3000.0, 1e-3, 0.0, 2.0, 2.0, np.inf, 2.0, -1.0])
    x = np.array([180.0, 260.0, 2900.0, 3100.0, 5.0, 1.0, 0.0, np.inf, 1.0, 800.0, 1.0])
    for ours, theirs in ((td.special.gammainc, S.gammainc), (td.special.gammaincc, S.gammaincc)):
        assert_close(ours(td.tensor(a), td.tensor(x)), theirs(a, x), rtol=1e-9, atol=1e-300)


def test_zeta_and_beta():
    s, q = RNG.uniform(1.2, 9, (3, 4)), RNG.uniform(0.2, 9, (3, 4))
    check_op(td.special.zeta, S.zeta, inputs=[(s, q)], names=["zeta"], rtol=1e-9)
    assert_close(td.special.zeta(td.tensor([1.0, 0.5, 30.0, 3.0, 2.5]), td.tensor([2.0, 1.0, 1.0, -2.0, -0.5])),
                 np.array([np.inf, np.nan, S.zeta(30.0, 1.0), np.inf, np.nan]), rtol=1e-6)  # fmt: skip
    slope = td.grad(td.special.zeta)
    known = [-0.9375482543158438, -0.1981262428856368, -0.0689112658961254]  # of Riemann's, at 2, 3, 4
    for x, expected in zip((2.0, 3.0, 4.0), known, strict=True):
        assert_close(
            slope(td.tensor(x, dtype=td.float64), td.tensor(1.0, dtype=td.float64)), np.array(expected), rtol=1e-9
        )
    x = td.tensor(2.5, dtype=td.float64)
    for q in (0.3, 7.0, 40.0):  # the series itself, with its tail as an integral
        terms = np.arange(2_000_000) + q
        end = terms[-1] + 0.5
        tail = end**-1.5 * (np.log(end) / 1.5 + 1 / 1.5**2)
        expected = -(np.sum(np.log(terms) * terms**-2.5) + tail)
        assert_close(slope(x, td.tensor(q, dtype=td.float64)), np.array(expected), rtol=1e-9)
    f = td.special.zeta
    for _ in range(9):
        f = td.grad(f)
    with pytest.raises(td.errors.AutogradError, match="derivative by x is not offered"):
        f(td.tensor(2.0), td.tensor(1.0))
    check_op(td.special.beta, S.beta, inputs=[(s, q)], rtol=1e-9, names=["beta"])
    check_op(td.special.betaln, S.betaln, inputs=[(s, q)], rtol=1e-9, names=["betaln"])


def test_mvlgamma_and_xlog1py():
    x = RNG.uniform(2, 5, (3, 4))
    check_op(td.mvlgamma, np.vectorize(lambda v: S.multigammaln(v, 3)), inputs=[(x,)], kwargs={"p": 3})
    with pytest.raises(td.errors.ValueRangeError, match="p is 0"):
        td.mvlgamma(td.ones(1), 0)
    check_op(td.special.xlog1py, S.xlog1py, inputs=[(X, POSITIVE)], names=["xlog1py"])
    assert_close(td.special.xlog1py(td.tensor([0.0, 0.0]), td.tensor([-1.0, np.nan])), np.array([0.0, np.nan]))
