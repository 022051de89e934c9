"""The logarithm of gamma and its derivatives."""

import numpy as np
import pytest
import scipy.special

import tandem as td
from tests.check import check_op
from tests.ops.unary_checks import check_values_and_gradients

# name -> (reference, interval on which it is smooth)
FUNCTIONS = {
    "lgamma": (scipy.special.gammaln, 0.3, 4),
    "digamma": (scipy.special.digamma, 0.3, 4),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name):
    check_values_and_gradients(name, *FUNCTIONS[name])


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_polygamma(n):
    x = np.concatenate([np.geomspace(1e-3, 1e3, 30), [1.0, 2.0, 10.5]])
    np.testing.assert_allclose(td.polygamma(n, td.tensor(x)).numpy(), scipy.special.polygamma(n, x), rtol=1e-12)
    check_op(lambda t: td.polygamma(n, t), lambda a: scipy.special.polygamma(n, a), shapes=[(4,)], low=1.5, high=4, second=n == 1,
             test_layouts=False, names=["polygamma"])  # fmt: skip
    # d/dx on the negative side agrees with the next order
    y = np.array([-0.3, -1.6, -2.45])
    numeric = (td.polygamma(n - 1, td.tensor(y + 1e-6)) - td.polygamma(n - 1, td.tensor(y - 1e-6))).numpy() / 2e-6
    np.testing.assert_allclose(td.polygamma(n, td.tensor(y)).numpy(), numeric, rtol=1e-5)
