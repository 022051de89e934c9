"""Losses as layers."""

import numpy as np
import pytest

import tandem as td
import tandem.nn.functional as F
from tandem import nn
from tests.check import check_gradients, check_op

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.normal(size=shape)


def test_losses_against_numpy():
    sign = np.array([1.0, -1.0, 1.0])
    check_op(
        F.soft_margin_loss,
        lambda x, y: np.log1p(np.exp(-y * x)).mean(),
        inputs=[(normal(3), sign)],
        test_layouts=False,
        second=False,
    )
    check_op(F.hinge_embedding_loss, lambda x, y: np.where(y == 1, x, np.maximum(0, 1 - x)).mean(), inputs=[(normal(3), sign)],
             test_layouts=False, grad=False)  # fmt: skip
    check_gradients(lambda x, y: F.cosine_embedding_loss(x, y, td.tensor([1, -1])), [normal(2, 3), normal(2, 3)])
    check_gradients(lambda x, y: F.gaussian_nll_loss(x, y, td.exp(x)), [normal(2, 3), normal(2, 3)])
    check_gradients(lambda x, y: F.triplet_margin_loss(x, y, x * y, margin=5.0), [normal(2, 3), normal(2, 3)])
    check_gradients(lambda x: F.ctc_loss(F.log_softmax(x, -1), td.tensor([[1, 2]]), [3], [2]), [normal(3, 1, 3)])


def test_losses_take_pytorchs_first_arguments():
    x, y = td.tensor([1.0, 2.0]), td.tensor([0.0, 0.0])
    assert nn.MSELoss(False)(x, y).item() == 5.0 and nn.MSELoss(reduce=False)(x, y).tolist() == [1.0, 4.0]
    assert nn.MSELoss(True)(x, y).item() == 2.5
    with pytest.raises(td.ValueRangeError, match="reduction"):
        nn.MSELoss(reduction="none of them")(x, y)


def test_ctc_lengths_as_numbers():
    x = F.log_softmax(td.tensor(normal(4, 2, 3)), -1)
    a = F.ctc_loss(x, td.tensor([[1, 2], [2, 0]]), td.tensor([4, 3]), td.tensor([2, 1]))
    assert a.item() == F.ctc_loss(x, td.tensor([1, 2, 2]), (4, 3), (2, 1)).item()
    one = F.ctc_loss(x[:, 0], td.tensor([1, 2]), [4], [2], reduction="none")
    assert one.shape == () or one.shape == (1,)
