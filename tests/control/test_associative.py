"""Associative scans."""

import numpy as np

import tandem as td
from tests.control.agree import check

D = td.float64


def rand(*shape):
    return td.tensor(np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape), dtype=D)


def test_associative_scan():
    for n in (1, 2, 3, 7, 8):
        x = rand(n, 2)
        check(lambda x: td.associative_scan(lambda a, b: a + b, x), x, reference=lambda x: td.cumsum(x, 0))
        np.testing.assert_allclose(
            td.associative_scan(lambda a, b: a + b, x, reverse=True).numpy(),
            x.numpy()[::-1].cumsum(0)[::-1],
            rtol=1e-12,
        )
    # a linear recurrence h = a * h + b, as pairs
    join = lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1])
    a, b = rand(6), rand(6) * 2
    expected = td.scan(lambda h, ab: (ab[0] * h + ab[1],) * 2, td.tensor(0.0, dtype=D), (a, b))[1]
    np.testing.assert_allclose(
        td.compile(lambda a, b: td.associative_scan(join, (a, b))[1])(a, b).numpy(), expected.numpy()
    )
