import numpy as np
import pytest

import tandem as td
from tests.check import assert_close, check_gradients, check_op

RNG = np.random.default_rng(17)


def test_embedding():
    w = RNG.normal(size=(5, 3)).astype(np.float32)
    for index in (np.array([1, 4, 1]), np.array([[0, 2], [2, 2]], np.int32), np.array(3)):
        check_op(td.embedding, lambda i, w: w[i], inputs=[(index, w)])
    with pytest.raises(td.IndexRangeError, match="5"):
        td.embedding(td.tensor([5]), td.tensor(w))
    with pytest.raises(td.IndexRangeError):
        td.embedding(td.tensor([-1]), td.tensor(w))


def test_padding_takes_no_gradient():
    w = td.tensor(RNG.normal(size=(3, 2)), requires_grad=True)
    td.embedding(td.tensor([0, 2, 2]), w, padding_idx=-1).sum().backward()
    assert_close(w.grad, [[1, 1], [0, 0], [0, 0]])
    index = td.tensor([0, 1])
    check_gradients(lambda w: td.embedding(index, w * w, padding_idx=2), (RNG.normal(size=(3, 2)),))


def test_one_hot():
    x = np.array([[1, 0], [2, 2]])
    check_op(td.one_hot, lambda x: np.eye(4, dtype=np.int64)[x], inputs=[(x,)], args=(4,), grad=False)
    assert td.one_hot(td.tensor(x)).shape == (2, 2, 3)
    with pytest.raises(td.IndexRangeError):
        td.one_hot(td.tensor([3]), 3)
