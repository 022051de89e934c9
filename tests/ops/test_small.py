import numpy as np

import tandem as td
import tandem.ops as F
from tests.check import check_op


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
