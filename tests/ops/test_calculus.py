"""Integrals, slopes and covariances of samples."""

import numpy as np
import scipy.integrate

import tandem as td
from tests.check import assert_close, check_op

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.normal(size=shape)


def test_integrals_and_slopes():
    y, x = normal(3, 5), np.sort(normal(5))
    check_op(td.trapezoid, lambda y: np.trapezoid(y, axis=1), inputs=[(y,)])
    check_op(td.trapezoid, lambda y, x: np.trapezoid(y, x, axis=1), inputs=[(y, x)])
    check_op(td.cumulative_trapezoid, lambda y, x: scipy.integrate.cumulative_trapezoid(y, x), inputs=[(y, x)])
    assert_close(td.trapz(td.tensor(y), dx=0.5, dim=0), np.trapezoid(y, dx=0.5, axis=0))
    for edge_order in (1, 2):
        got = td.gradient(td.tensor(y), spacing=0.5, edge_order=edge_order)
        for ours, theirs in zip(got, np.gradient(y, 0.5, edge_order=edge_order), strict=True):
            assert_close(ours, theirs)
        check_op(lambda a, e=edge_order: td.gradient(a, spacing=(td.tensor(x),), axis=1, edge_order=e)[0],
                 lambda a, e=edge_order: np.gradient(a, x, axis=1, edge_order=e), inputs=[(y,)], names=["gradient"],
                 deferred=False)  # fmt: skip


def test_covariances():
    x, f, a = normal(3, 6), RNG.integers(1, 4, 6), RNG.uniform(0.5, 2, 6)
    check_op(td.cov, np.cov, inputs=[(x,)])
    assert_close(
        td.cov(td.tensor(x), correction=0, fweights=td.tensor(f), aweights=td.tensor(a)),
        np.cov(x, ddof=0, fweights=f, aweights=a),
    )
    assert_close(td.cov(td.tensor(x), fweights=td.tensor(f), aweights=td.tensor(a)), np.cov(x, fweights=f, aweights=a))
    assert_close(td.cov(td.tensor(x[0])), np.cov(x[0]))
    check_op(td.corrcoef, np.corrcoef, inputs=[(x,)], atol=1e-10)
