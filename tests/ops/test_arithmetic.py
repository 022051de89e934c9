import numpy as np
import pytest

import tandem as td
from tests.check import check_op

PAIRS = [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (3,)), ((0, 3), (1, 3)), ((2, 3, 4), (3, 1))]
NUMBERS = ("float32", "float64", "int32", "int64", "uint8")


def test_add():
    check_op(td.add, reference=np.add, shapes=PAIRS, dtypes=(*NUMBERS, "float16", "bfloat16"))


def test_multiply():
    check_op(td.multiply, reference=np.multiply, shapes=PAIRS, dtypes=NUMBERS)


def test_true_divide():
    check_op(td.true_divide, reference=np.true_divide, shapes=PAIRS, low=0.5)


def test_exp():
    check_op(td.exp, reference=np.exp)


def test_matmul():
    shapes = [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((4,), (4, 3)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((0, 3), (3, 2)),
        ((3, 0), (0, 2)),
    ]
    check_op(td.matmul, reference=np.matmul, shapes=shapes)


def test_sum():
    check_op(td.sum, reference=lambda x: x.sum(-1), shapes=[(3, 4), (5,), (2, 0), (2, 3, 4)], kwargs={"axis": -1})
    check_op(td.sum, reference=lambda x: x.sum(0), shapes=[(3, 4), (5,), (2, 0), (2, 3, 4)], kwargs={"axis": 0})
    check_op(td.sum, reference=np.sum)


def test_addcdiv_of_integers_is_refused():
    whole = td.tensor([4, 6])
    with pytest.raises(td.DTypeError, match="integers are divided in more ways than one"):
        td.addcdiv(whole, whole, whole)
    assert td.addcdiv(td.ones(2), whole, td.tensor([8.0, 6.0])).tolist() == [1.5, 2.0]
