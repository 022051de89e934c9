"""Bits of integers."""

import numpy as np
import pytest

import tandem as td
from tests.check import check_op

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


INTEGERS = ("int64", "int32", "uint8", "int8")


def test_bitwise_invert():
    check_op(td.bitwise_invert, np.invert, dtypes=(*INTEGERS, "bool"), shapes=[(3, 4), ()])
    assert td.bitwise_not(td.tensor([0])).tolist() == (~td.tensor([0])).tolist() == [-1]


def test_shifts_by_numbers():
    for ours, numpys in ((td.bitwise_left_shift, np.left_shift), (td.bitwise_right_shift, np.right_shift)):
        check_op(ours, numpys, dtypes=INTEGERS, shapes=[((3, 4), (4,)), ((), (3,))], low=0, high=6)
    x = td.tensor([1, 2])
    x <<= 3
    assert x.tolist() == [8, 16] and (x >> 2).tolist() == [2, 4]
