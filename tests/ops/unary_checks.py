"""Elementwise functions of one operand against a reference: values, gradients, special values."""

import numpy as np

import tandem as td
from tests.check import check_op

INF, NAN = float("inf"), float("nan")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.5, 1e-30, -1e-30, 1e-40, 88.0, -104.0, 3e38, -3e38, INF, -INF, NAN]


def check_values_and_gradients(name, reference, low, high):
    """td.NAME against the reference between two numbers where it is smooth."""
    check_op(getattr(td, name), reference, shapes=[(3, 4), ()], dtypes=["float32", "float64"], low=low, high=high,
             test_layouts=False, names=[name])  # fmt: skip


def check_special_values(name, reference):
    """td.NAME of zeros, subnormal, huge and infinite numbers and NaN; zeros have the reference's sign."""
    x = np.array(SPECIAL, np.float32)
    if name in ("sin", "cos", "tan"):  # beyond 2^48 these carry no information
        x = np.where(np.isfinite(x) & (np.abs(x) > 1e10), np.float32(1e10), x)
    with np.errstate(all="ignore"):
        expected = reference(x)
    got = getattr(td, name)(td.tensor(x)).numpy()
    np.testing.assert_allclose(got, expected, rtol=3e-6, atol=1e-44)
    if name not in ("relu", "erfinv", "sign"):  # signs of zeros
        zeros = (expected == 0) & (np.abs(x) < 1)
        np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(expected[zeros]))
