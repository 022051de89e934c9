import numpy as np
import scipy.special as ss

import tandem as td
from tests.check import assert_close, check_op

SHAPES = [(3, 4), (5,), (2, 3, 4), (0, 3)]


def test_softmax():
    check_op(td.softmax, reference=lambda x: ss.softmax(x, -1), shapes=SHAPES, dtypes=("float32", "bfloat16"))
    check_op(td.softmax, reference=lambda x: ss.softmax(x, 0), shapes=[(3, 4), (2, 3, 4)], kwargs={"axis": 0})


def test_log_softmax():
    check_op(td.log_softmax, reference=lambda x: ss.log_softmax(x, -1), shapes=SHAPES)
    check_op(td.log_softmax, reference=lambda x: ss.log_softmax(x, 1), shapes=[(2, 3, 4)], kwargs={"axis": 1})


def test_softmin():
    check_op(td.softmin, reference=lambda x: ss.softmax(-x, -1), shapes=[(3, 4)])


def test_large_and_infinite_elements():
    x = td.tensor([[1000.0, 1000.0, -1000.0], [0.0, -float("inf"), 0.0]])
    assert_close(td.softmax(x), [[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
    assert_close(td.log_softmax(x)[0], [-np.log(2), -np.log(2), -2000 - np.log(2)])


def test_zero_axes_and_dtype():
    assert td.softmax(td.tensor(3.0)).item() == 1.0
    assert td.softmax(td.tensor([1, 2])).dtype == td.float32
    assert td.softmax(td.tensor([1.0, 2.0]), dtype=td.float64).dtype == td.float64
