"""Division that rounds, remainders, and their gradients."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_op


def grid(values):
    x, y = np.meshgrid(values, values)
    return x.ravel(), y.ravel()


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_integer_division_never_traps(name, dtype):
    info = np.iinfo(dtype)
    x, y = grid(
        np.array(
            [0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1] + ([-1, -2, -3, -7] if info.min else []),
            dtype,
        )
    )
    x, y = x[y != 0], y[y != 0]
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)  # NumPy wraps, too
    np.testing.assert_array_equal(getattr(td, name)(td.tensor(x), td.tensor(y)).numpy(), expected)
    with pytest.raises(td.DivisionError):
        getattr(td, name)(td.tensor(5, dtype=dtype), 0)


def test_division_gradients():
    check_op(td.remainder, np.remainder, shapes=[((3, 4), (3, 4))], low=0.6, high=1.9)
    check_op(td.fmod, np.fmod, shapes=[((3, 4), (3, 4))], low=0.6, high=1.9)
    check_op(td.floor_divide, np.floor_divide, inputs=[(np.array([1.5, -2.5]), np.array([0.7, 0.8]))])


def test_rounding_modes():
    x, y = td.tensor([7, -7]), td.tensor([2, 2])
    assert td.div(x, y, rounding_mode="floor").tolist() == [3, -4]
    assert td.div(x, y, rounding_mode="trunc").tolist() == [3, -3]
    assert td.div(x.to(td.float32), 2.0, rounding_mode="trunc").tolist() == [3.0, -3.0]
    with pytest.raises(td.ValueRangeError, match="rounding_mode"):
        td.div(x, y, rounding_mode="up")


def test_trunc_divide():
    x, y = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    check_op(
        td.trunc_divide,
        lambda x, y: np.trunc(x / y),
        inputs=[(x, y), (x.astype(np.float32), y.astype(np.float32))],
        grad=False,
    )
