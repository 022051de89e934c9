"""Orthogonal polynomials."""

import numpy as np
import pytest
import scipy.special as S

import tandem as td
from tests.check import assert_close, check_op

RNG = np.random.default_rng(11)


POLYNOMIALS = {
    "chebyshev_polynomial_t": S.eval_chebyt, "chebyshev_polynomial_u": S.eval_chebyu,
    "chebyshev_polynomial_v": lambda n, x: np.cos((n + 0.5) * np.arccos(x)) / np.cos(0.5 * np.arccos(x)),
    "chebyshev_polynomial_w": lambda n, x: np.sin((n + 0.5) * np.arccos(x)) / np.sin(0.5 * np.arccos(x)),
    "shifted_chebyshev_polynomial_t": S.eval_sh_chebyt, "shifted_chebyshev_polynomial_u": S.eval_sh_chebyu,
    "shifted_chebyshev_polynomial_v": lambda n, x: POLYNOMIALS["chebyshev_polynomial_v"](n, 2 * x - 1),
    "shifted_chebyshev_polynomial_w": lambda n, x: POLYNOMIALS["chebyshev_polynomial_w"](n, 2 * x - 1),
    "hermite_polynomial_h": S.eval_hermite, "hermite_polynomial_he": S.eval_hermitenorm, "laguerre_polynomial_l": S.eval_laguerre,
    "legendre_polynomial_p": S.eval_legendre,
}  # fmt: skip


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name):
    x = RNG.uniform(0.05, 0.95, (3, 4))
    n = RNG.integers(0, 7, (3, 4))
    function = getattr(td.special, name)
    check_op(
        function,
        lambda x, n: POLYNOMIALS[name](n, x),
        inputs=[(x, n)],
        names=[name],
        rtol=1e-10,
        atol=1e-12,
        test_layouts=False,
    )
    assert_close(function(td.tensor(x), -1), np.zeros_like(x))


@pytest.mark.parametrize("n", [2**40, 2**21, 1e30, float("inf")])
def test_polynomials_of_degrees_that_would_never_end_are_refused(n):
    for compiled in (False, True):
        f = lambda x, n: td.special.legendre_polynomial_p(x, n)
        f = td.compile(f) if compiled else f
        for degree in (n, td.tensor([2.0, n])):
            with pytest.raises(td.ValueRangeError, match="degrees up to 1048576 are computed"):
                f(td.tensor([0.5, 0.25], dtype=td.float64), degree).tolist()
    assert td.special.chebyshev_polynomial_t(td.tensor(1.0), 1000.0).item() == 1
