import numpy as np

import tandem as td
import tandem.ops as F
from tests.check import check_op

INTEGERS = ("int64", "int32", "uint8", "int8")


def test_bitwise_invert():
    check_op(td.bitwise_invert, np.invert, dtypes=(*INTEGERS, "bool"), shapes=[(3, 4), ()])
    assert td.bitwise_not(td.tensor([0])).tolist() == (~td.tensor([0])).tolist() == [-1]


def test_shifts():
    for ours, numpys in ((td.bitwise_left_shift, np.left_shift), (td.bitwise_right_shift, np.right_shift)):
        check_op(ours, numpys, dtypes=INTEGERS, shapes=[((3, 4), (4,)), ((), (3,))], low=0, high=6)
    x = td.tensor([1, 2])
    x <<= 3
    assert x.tolist() == [8, 16] and (x >> 2).tolist() == [2, 4]


def test_trunc_divide():
    x, y = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    check_op(
        td.trunc_divide,
        lambda x, y: np.trunc(x / y),
        inputs=[(x, y), (x.astype(np.float32), y.astype(np.float32))],
        grad=False,
    )


def test_masked_fill():
    check_op(td.masked_fill, lambda x, m, v: np.where(m, v, x),
             inputs=[(np.arange(6.0).reshape(2, 3), np.array([True, False, True]), np.asarray(9.0))])  # fmt: skip
    x = td.zeros((2, 2))
    assert x.masked_fill_(td.tensor([True, False]), 5) is x and x.tolist() == [[5, 0], [5, 0]]


def test_ramp():
    check_op(F.ramp, lambda a, b: a + b * np.arange(4), inputs=[(np.asarray(0.5), np.asarray(2.0))], grad=False,
             kwargs={"size": 4, "dtype": td.float64})  # fmt: skip


def test_stop_gradient():
    x = td.tensor([1.0, 2.0], requires_grad=True)
    (td.stop_gradient(x) * x).sum().backward()
    assert x.grad.tolist() == [1, 2]


def test_seed_and_like():
    assert td.seed() == td.initial_seed()
    x = td.randn_like(td.zeros((2, 3), dtype=td.float64))
    assert x.shape == (2, 3) and x.dtype is td.float64
