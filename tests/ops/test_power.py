"""Powers: values, gradients, corners, integers that wrap."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_op

PAIRS = [((3, 4), (3, 4)), ((3, 1), (4,)), ((), (3,))]


# -- powers


def test_power_gradients():
    check_op(td.power, np.power, shapes=PAIRS, low=0.4, high=2.5)


@pytest.mark.parametrize("exponent", [2, 3, 4, 0.5, -1, -0.5, -2, 1, 0, 2.5, -1.5, 7])
def test_power_by_numbers(exponent):
    check_op(
        lambda x: x**exponent,
        lambda x: x ** np.float64(exponent),
        shapes=[(5,)],
        low=0.4,
        high=2,
        test_layouts=False,
        rtol=1e-5,
    )


def test_power_at_zero():
    for exponent, first, second in (
        (2, 0.0, 2.0),
        (3, 0.0, 0.0),
        (1, 1.0, 0.0),
        (0, 0.0, 0.0),
        (2.5, 0.0, 0.0),
        (5, 0.0, 0.0),
    ):
        for y in (exponent, td.tensor(float(exponent))):
            x = td.tensor(0.0, requires_grad=True)
            (g,) = td.autograd.grad(x**y, x, create_graph=True)
            assert float(g) == first, (exponent, y)
            if g.requires_grad:
                (h,) = td.autograd.grad(g, x)
                assert float(h) == second, (exponent, y)
    base, exponent = td.tensor([0.0, 0.0, 2.0], requires_grad=True), td.tensor([2.0, 0.0, 0.0], requires_grad=True)
    (base**exponent).sum().backward()
    np.testing.assert_allclose(base.grad.numpy(), [0, 0, 0])
    np.testing.assert_allclose(exponent.grad.numpy(), [0, 0, np.log(2)], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_integer_powers_wrap(dtype):
    info = np.iinfo(dtype)
    x = np.array([0, 1, 2, 3, 5, 7, 10, info.max, info.min, info.max - 2], dtype)
    for y in (0, 1, 2, 3, 4, 5, 9, 31):
        np.testing.assert_array_equal((td.tensor(x) ** y).numpy(), x ** np.array(y, dtype), err_msg=str(y))
        np.testing.assert_array_equal((td.tensor(x) ** td.full((10,), y, dtype=dtype)).numpy(), x ** np.array(y, dtype))
    assert (td.tensor([2, 1, -1, 0, -1]) ** td.tensor([-1, -5, -1, -1, -2])).tolist() == [0, 1, -1, 0, 1]
    with pytest.raises(td.ValueRangeError, match="negative power"):
        td.tensor([2]) ** -1
    assert (td.tensor([2]) ** -1.0).tolist() == [0.5]
    assert (td.tensor([2]) ** 0.5).dtype is td.float32
    assert (2 ** td.tensor([3, 4])).tolist() == [8, 16]
    assert (2.0 ** td.tensor([3.0])).tolist() == [8.0]


def test_power_in_place():
    x = td.tensor([1.0, 2.0, 3.0])
    assert x.pow_(2) is x and x.tolist() == [1.0, 4.0, 9.0]
    x **= 0.5
    assert x.tolist() == [1.0, 2.0, 3.0]
    x.pow_(td.tensor([0.0, 1.0, 2.0]))
    assert x.tolist() == [1.0, 2.0, 9.0]
    assert td.float_power(td.tensor([2]), td.tensor([-2])).tolist() == [0.25]
