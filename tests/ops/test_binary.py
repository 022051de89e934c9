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


@pytest.mark.parametrize(
    "name", ["atan2", "hypot", "logaddexp", "logaddexp2", "xlogy", "maximum", "minimum", "fmax", "fmin"]
)
def test_gradients(name):
    reference = {"atan2": np.arctan2, "xlogy": scipy.special.xlogy}.get(name) or getattr(np, name)
    check_op(getattr(td, name), reference, shapes=PAIRS, low=0.3, high=3)


def test_clamps():
    check_op(td.clip, lambda x: np.clip(x, -0.5, 0.5), shapes=[(3, 4), ()], args=(-0.5, 0.5))
    check_op(td.clamp_min, lambda x: np.maximum(x, 0.1), shapes=[(5,)], args=(0.1,))
    check_op(td.clamp_max, lambda x: np.minimum(x, 0.1), shapes=[(5,)], args=(0.1,))
    x = np.array([NAN, -1.0, 2.0])
    np.testing.assert_array_equal(td.clip(td.tensor(x), 0, 1).numpy(), np.clip(x, 0, 1))
    assert td.tensor([1, 5]).clamp_(max=3).tolist() == [1, 3] and td.tensor([1, 5]).clamp(
        min=td.tensor([2, 6])
    ).tolist() == [2, 6]


def test_copysign_gradient():
    check_op(td.copysign, np.copysign, inputs=[(np.array([1.0, -2.0, 3.0]), np.array([-1.0, -1.0, 2.0]))])


def test_gradients_at_corners():
    def gradient(fn, *values):
        tensors = [td.tensor(v, requires_grad=True) for v in values]
        return [float(g) for g in td.autograd.grad(fn(*tensors), tensors)]

    assert gradient(td.hypot, 0.0, 0.0) == [0.0, 0.0]
    assert gradient(td.logaddexp, -INF, -INF) == [0.5, 0.5]
    assert gradient(td.logaddexp, 0.0, -INF) == [1.0, 0.0]
    assert gradient(td.maximum, 1.0, 1.0) == [0.5, 0.5]
    assert gradient(td.fmax, NAN, 1.0) == [0.0, 1.0]
    assert gradient(td.fmax, 1.0, 1.0) == [1.0, 0.0]
    assert gradient(td.fmin, 1.0, 1.0) == [1.0, 0.0]


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


# -- bits and logic


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint8", "uint32"])
def test_bits(name, dtype):
    check_op(
        getattr(td, name),
        getattr(np, name),
        shapes=[((3, 4), (4,))],
        dtypes=[dtype],
        low=-100,
        high=100,
        test_layouts=False,
    )


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_shifts(dtype):
    bits = np.iinfo(dtype).bits
    x = np.array([1, 2, 5, 100, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    for y in (0, 1, 3, bits - 1):
        np.testing.assert_array_equal((td.tensor(x) << y).numpy(), np.left_shift(x, np.array(y, dtype)))
        np.testing.assert_array_equal((td.tensor(x) >> y).numpy(), np.right_shift(x, np.array(y, dtype)))
    assert (td.tensor([1, -8], dtype="int32") << 40).tolist() == [0, 0]
    assert (td.tensor([1, -8], dtype="int32") >> 40).tolist() == [0, -1]


def test_invert_and_errors():
    assert (~td.tensor([True, False])).tolist() == [False, True]
    assert (~td.tensor([0, 5], dtype="uint8")).tolist() == [255, 250]
    with pytest.raises(td.DTypeError, match="no bits"):
        td.tensor([1.0]) & 1
    with pytest.raises(td.DTypeError, match="no bits"):
        td.tensor([True]) << td.tensor([True])
    with pytest.raises(td.DTypeError, match="booleans"):
        td.tensor([True]) // td.tensor([True])
    x = td.tensor([6, 5])
    x &= 4
    x |= 1
    x ^= 3
    x <<= 2
    x >>= 1
    assert x.tolist() == [12, 12]


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_logic(name):
    for dtype in ("bool", "float32", "int32"):
        check_op(
            getattr(td, name),
            getattr(np, name),
            shapes=[((3, 4), (4,))],
            dtypes=[dtype],
            low=-1,
            high=1,
            grad=False,
            test_layouts=False,
        )
    assert td.logical_not(td.tensor([0.0, 2.0])).tolist() == [True, False]


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


def test_where_and_isin():
    check_op(lambda x, y: td.where(td.tensor([True, False, True]), x, y), lambda x, y: np.where([True, False, True], x, y),
             shapes=[((2, 3), (3,)), ((3,), ())], names=["where"])  # fmt: skip
    positions = td.where(td.tensor([[0, 1], [2, 0]]))
    assert [p.tolist() for p in positions] == [[0, 1], [1, 0]]
    assert td.tensor([1.0, 2.0]).where(td.tensor([True, False]), 0).tolist() == [1.0, 0.0]
    assert td.where(td.tensor([True]), 1, 2.5).dtype is td.float32
    assert td.isin(td.tensor([[1, 2], [3, 4]]), td.tensor([4, 1])).tolist() == [[True, False], [False, True]]
    assert td.isin(td.tensor([1, 2]), td.tensor([2]), invert=True).tolist() == [True, False]


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
