"""What kind of number an element is."""

import numpy as np

import tandem as td
from tests.check import check_op

INF, NAN = float("inf"), float("nan")


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0, -3.5, 1e-40, 3e38, INF, -INF, NAN], np.float32)


def test_copysign_gradient():
    check_op(td.copysign, np.copysign, inputs=[(np.array([1.0, -2.0, 3.0]), np.array([-1.0, -1.0, 2.0]))])


# -- the rest


def test_classification():
    x = td.tensor(SPECIAL)
    for name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit"):
        np.testing.assert_array_equal(getattr(td, name)(x).numpy(), getattr(np, name)(SPECIAL), err_msg=name)
        half = SPECIAL[np.abs(SPECIAL) != np.float32(3e38)].astype(np.float16)
        np.testing.assert_array_equal(getattr(td, name)(td.tensor(half)).numpy(), getattr(np, name)(half), err_msg=name)
    assert td.isfinite(td.tensor([1])).tolist() == [True] and td.isnan(td.tensor([1])).tolist() == [False]
    assert td.signbit(td.tensor([-1, 1])).tolist() == [True, False]
    np.testing.assert_allclose(td.nan_to_num(x).numpy(), np.nan_to_num(SPECIAL))
    np.testing.assert_allclose(
        td.nan_to_num(x, 1.0, 2.0, 3.0).numpy(), np.nan_to_num(SPECIAL, nan=1.0, posinf=2.0, neginf=3.0)
    )


def test_closeness():
    a, b = np.array([1.0, 2.0, INF, NAN]), np.array([1.0 + 1e-9, 2.1, INF, NAN])
    assert td.isclose(td.tensor(a), td.tensor(b)).tolist() == np.isclose(a, b).tolist()
    assert td.isclose(td.tensor(a), td.tensor(b), equal_nan=True).tolist() == np.isclose(a, b, equal_nan=True).tolist()
    assert td.isclose(td.tensor([1, 2]), td.tensor([1, 3]), rtol=0.5).tolist() == [True, True]
    assert td.allclose(td.tensor([1.0]), td.tensor([1.0])) is True
    assert not td.allclose(td.tensor([1.0]), td.tensor([1.1]))
