"""Division, powers, bits, comparison and other functions of two operands."""

import numpy as np
import pytest
import scipy.special

import tandem as td
from tests.check import check_op

INF, NAN = float("inf"), float("nan")


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0, -3.5, 1e-40, 3e38, INF, -INF, NAN], np.float32)


PAIRS = [((3, 4), (3, 4)), ((3, 1), (4,)), ((), (3,))]


def grid(values):
    x, y = np.meshgrid(values, values)
    return x.ravel(), y.ravel()


def floor_divide(x, y):
    return np.where(np.isinf(x) | np.isinf(y), x / y, np.floor_divide(x, y))  # the Array API's rule for infinities


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("floor_divide", floor_divide), ("remainder", np.remainder), ("fmod", np.fmod), ("atan2", np.arctan2),
        ("power", np.power),
        ("hypot", np.hypot), ("logaddexp", np.logaddexp), ("copysign", np.copysign), ("fmax", np.fmax), ("fmin", np.fmin),
        ("maximum", np.maximum), ("minimum", np.minimum), ("true_divide", np.true_divide), ("isclose", np.isclose),
        ("less", np.less), ("less_equal", np.less_equal), ("greater", np.greater), ("greater_equal", np.greater_equal),
        ("equal", np.equal), ("not_equal", np.not_equal), ("nextafter", np.nextafter), ("xlogy", scipy.special.xlogy),
    ],
)  # fmt: skip
def test_special_values(name, reference):
    x, y = grid(SPECIAL)
    with np.errstate(all="ignore"):
        expected = reference(x, y)
    got = getattr(td, name)(td.tensor(x), td.tensor(y)).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-6, err_msg=str(list(zip(x, y))))
    if name in ("remainder", "fmod", "atan2", "copysign", "true_divide"):
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize(
    "name", ["atan2", "hypot", "logaddexp", "logaddexp2", "xlogy", "maximum", "minimum", "fmax", "fmin"]
)
def test_gradients(name):
    reference = {"atan2": np.arctan2, "xlogy": scipy.special.xlogy}.get(name) or getattr(np, name)
    check_op(getattr(td, name), reference, shapes=PAIRS, low=0.3, high=3)


def test_interpolation_and_fused_products():
    check_op(td.lerp, lambda x, e, w: x + w * (e - x), shapes=[((3, 4), (3, 4), (3, 4))], low=0.6, high=2)
    check_op(td.lerp, lambda x, e, w: x + w * (e - x), shapes=[((3, 4), (4,), ())], low=0.0, high=0.4)
    assert td.lerp(td.tensor(1e8), td.tensor(1.0), 1.0).item() == 1.0
    check_op(td.addcmul, lambda x, a, b: x + 0.5 * a * b, shapes=[((3, 4), (4,), (3, 1))], kwargs={"value": 0.5})
    check_op(
        td.addcdiv, lambda x, a, b: x + 0.5 * a / b, shapes=[((3, 4), (4,), (3, 1))], kwargs={"value": 0.5}, low=0.5
    )
    x = td.tensor([1.0])
    assert x.addcmul_(td.tensor([2.0]), td.tensor([3.0])).tolist() == [7.0]
    assert x.lerp_(td.tensor([9.0]), 0.5).tolist() == [8.0]


def test_operators_take_numbers_on_both_sides():
    x = td.tensor([7, -7])
    assert (x // 2).tolist() == [3, -4] and (x % 3).tolist() == [1, 2]
    assert (20 // x).tolist() == [2, -3] and (20 % x).tolist() == [6, -1]
    assert (x > 0).tolist() == [True, False] and (1 - x).tolist() == [-6, 8]
    assert (x & 1).tolist() == [1, 1] and (1 << td.tensor([0, 3])).tolist() == [1, 8]
    y = td.tensor([7.0])
    y //= 2
    y %= 2
    assert y.tolist() == [1.0]
