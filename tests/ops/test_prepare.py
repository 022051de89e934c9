"""Python numbers among integers: those that their type has no room for are refused, compared as they are, or made floats."""

import math

import numpy as np
import pytest

import tandem as td
import tandem.torch as torch

M, I = td.tensor([True, False, True]), td.tensor([0, 2])


def bytes_(*values):
    return td.tensor(values or (4, 1, 44), dtype="uint8")


def assign(key, value):
    x = bytes_()
    x[key] = value
    return x


WRITES = {
    "masked_fill": lambda v: td.masked_fill(bytes_(), M, v),
    "masked_fill_": lambda v: bytes_().masked_fill_(M, v),
    "index_fill": lambda v: bytes_().index_fill(0, I, v),
    "fill_": lambda v: bytes_().fill_(v),
    "fill": lambda v: td.fill(bytes_(), v),
    "full": lambda v: td.full((2,), v, dtype="uint8"),
    "full_like": lambda v: td.full_like(bytes_(), v),
    "full_like of a type": lambda v: td.full_like(td.zeros(3), v, dtype="uint8"),
    "new_full": lambda v: bytes_().new_full((2,), v),
    "scalar_tensor": lambda v: td.scalar_tensor(v, dtype="uint8"),
    "scatter": lambda v: td.scatter(bytes_(), 0, I, v),
    "put_": lambda v: bytes_().put_(I, v),
    "fill_diagonal_": lambda v: td.ones((2, 2), dtype="uint8").fill_diagonal_(v),
    "pad": lambda v: td.nn.functional.pad(bytes_(), (1, 1), value=v),
    "constant_pad_nd": lambda v: torch.constant_pad_nd(bytes_(), (1, 1), v),
    "constant_": lambda v: td.nn.init.constant_(bytes_(), v),
    "x[0] =": lambda v: assign(0, v),
    "x[mask] =": lambda v: assign(M, v),
    "x[index] =": lambda v: assign(I, v),
    "x[1:] =": lambda v: assign(slice(1, None), v),
    "compiled": lambda v: td.compile(lambda x, n: x.masked_fill(x > 1, n))(bytes_(), v),
    "captured": lambda v: td.compile(lambda x: x.masked_fill(x > 1, v))(bytes_()),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("number", [300, -300, 300.7, -1.5, math.inf, math.nan, 2**40])
def test_a_number_that_an_integer_type_has_no_room_for_is_refused(write, number):
    with pytest.raises(td.IntegerRangeError, match="which does not fit uint8"):
        WRITES[write](number)
    with pytest.raises(RuntimeError):  # PyTorch's class
        WRITES[write](number)


@pytest.mark.parametrize("write", WRITES)
def test_a_number_that_fits_is_written(write):
    assert 255 in WRITES[write](255).reshape(-1).tolist()
    assert WRITES[write](2.5).dtype is td.uint8


def test_negative_numbers_wrap_in_unsigned_types_as_in_pytorch():
    assert bytes_().fill_(-1).tolist() == [255, 255, 255]


@pytest.mark.parametrize(("a", "b"), [(True, False), (False, True)])
def test_where_refuses_a_number_that_its_other_branch_has_no_room_for(a, b):
    branch = (lambda number: (number, bytes_())) if a else (lambda number: (bytes_(), number))
    with pytest.raises(td.IntegerRangeError, match="does not fit uint8"):
        td.where(M, *branch(300))
    assert td.where(M, *branch(300.5)).dtype is td.float32
    assert td.where(M, *branch(7)).dtype is td.uint8


def test_quotients_of_bytes_and_large_numbers():
    expected = np.array([4, 1, 44], "uint8") / 300
    for divide in (lambda x: x / 300, lambda x: td.true_divide(x, 300), td.compile(lambda x: x / 300)):
        np.testing.assert_allclose(divide(bytes_()).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose((300 / bytes_()).numpy(), 1 / expected, rtol=1e-6)


def test_interpolation_by_a_large_integer():
    assert td.lerp(bytes_(0), bytes_(1), 300).tolist() == [300.0]


def test_bytes_are_compared_with_large_numbers():
    assert td.isclose(bytes_(), 300).tolist() == [False] * 3  # 44 is 300 less 256
    assert td.isin(bytes_(), 300).tolist() == [False] * 3
    assert td.fmax(bytes_(), -1).tolist() == [4, 1, 44]
    assert td.fmin(bytes_(), 300).tolist() == [4, 1, 44]


@pytest.mark.parametrize(
    "call",
    [
        lambda: td.randint(0, 300, (2,), dtype="uint8"),
        lambda: td.randint_like(bytes_(), 300),
        lambda: bytes_().random_(0, 300),
        lambda: td.linspace(0, 300, 3, dtype="uint8"),
        lambda: td.nn.functional.threshold(bytes_(), 0, 300),
    ],
)
def test_bounds_that_do_not_fit_are_refused(call):
    with pytest.raises(td.IntegerRangeError, match="does not fit uint8"):
        call()


def test_bounds_that_just_fit_are_taken():
    assert td.randint(255, 256, (2,), dtype="uint8").tolist() == [255, 255]
    assert bytes_().random_(255, 256).tolist() == [255] * 3
    assert td.randint_like(bytes_(), 255, 256).tolist() == [255] * 3


FACTORS = {
    "add": lambda x, n: td.add(x, x, alpha=n),
    "subtract": lambda x, n: td.subtract(x, x, alpha=n),
    "rsub": lambda x, n: td.rsub(x, x, alpha=n),
    "add of a number": lambda x, n: x.add(3, alpha=n),
    "add_": lambda x, n: x.add_(x, alpha=n),
    "sub_": lambda x, n: x.sub_(x, alpha=n),
    "power": lambda x, n: x**n,
    "power_": lambda x, n: x.pow_(n),
    "addcmul": lambda x, n: td.addcmul(x, x, x, value=n),
    "addcmul_": lambda x, n: x.addcmul_(x, x, value=n),
    "index_add": lambda x, n: td.index_add(x, 0, td.tensor([0, 1]), x, alpha=n),
    "addmm alpha": lambda x, n: td.addmm(x, x[:, None], x[None], alpha=n),
    "addmm beta": lambda x, n: td.addmm(x, x[:, None], x[None], beta=n),
    "addr": lambda x, n: td.addr(x, x, x, alpha=n),
    "floor_divide": lambda x, n: x // n,
    "remainder": lambda x, n: x % n,
    "fmod": lambda x, n: td.fmod(x, n),
}


@pytest.mark.parametrize("name", FACTORS)
def test_factors_exponents_and_divisors_fit_what_they_meet(name):
    call = FACTORS[name]
    for dtype, number in ((td.uint8, 300), (td.int8, 256), (td.int16, 2**33), (td.int32, 2**33)):
        with pytest.raises(td.IntegerRangeError, match=f"is {number}, which does not fit {dtype}"):
            call(td.tensor([2, 3], dtype=dtype), number)
    call(td.tensor([2, 3], dtype=td.int8), 100)
    call(td.tensor([2, 3], dtype=td.int64), 2**33)
    call(td.tensor([2.0, 3.0]), 2**33)


def test_factors_meet_what_the_tensors_promote_to():
    small, large = td.tensor([2], dtype=td.uint8), td.tensor([5], dtype=td.int64)
    assert td.add(small, large, alpha=300).tolist() == [1502]
    assert td.add(small, td.tensor([1], dtype=td.int8), alpha=300).tolist() == [302]  # int16
    assert td.add(large, small, alpha=200).tolist() == [405]
    assert td.subtract(large, small, alpha=200).tolist() == [-395]
    assert td.rsub(small, large, alpha=200).tolist() == [-395]
    assert td.addcmul(large, small, small, value=100).tolist() == [405]
    assert td.add(small, td.tensor([0.5]), alpha=300).tolist() == [152]


def test_a_factor_of_a_number_keeps_the_dtype():
    for dtype in (td.uint8, td.int8, td.int32, td.float16, td.float32):
        x = td.tensor([2, 3], dtype=dtype)
        assert td.add(x, 3, alpha=2).dtype is dtype and td.add(x, 3, alpha=2).tolist() == [8, 9]
        assert td.subtract(x, 1, alpha=2).dtype is dtype and td.subtract(x, 1, alpha=2).tolist() == [0, 1]
    assert td.add(td.tensor([2]), 3, alpha=0.5).tolist() == [3.5]
