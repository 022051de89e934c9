"""The steps of an LSTM as one operator: the same as the loop, with its gradients of the first and second order."""

import numpy as np
import pytest

import tandem as td
from tandem import nn


@pytest.mark.parametrize("bidirectional", [False, True])
def test_all_steps_as_one_operator_equal_the_loop(bidirectional, monkeypatch):
    td.manual_seed(0)
    model = nn.LSTM(3, 5, 2, bidirectional=bidirectional).to(td.float64)
    x = td.randn(4, 2, 3, dtype=td.float64).requires_grad_()
    first = [td.randn(4 if bidirectional else 2, 2, 5, dtype=td.float64).requires_grad_() for _ in range(2)]

    def everything():
        out, (h, c) = model(x, tuple(first))
        loss = (out * out).sum() + (h * 3).sum() + (c * c * c).sum()
        grads = td.autograd.grad(loss, [x, *first, *model.parameters()], create_graph=True)
        twice = td.autograd.grad((grads[0] ** 3).sum() + (grads[4] ** 2).sum(), [x, *first, *model.parameters()])
        return [out, h, c, *grads, *twice]

    want = everything()
    monkeypatch.setattr(nn.LSTM, "_as_one_operator", lambda self, x: True)
    for have, wanted in zip(everything(), want):
        np.testing.assert_allclose(have.detach().numpy(), wanted.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_without_bias_and_without_gradient_of_the_cells(monkeypatch):
    td.manual_seed(0)
    model = nn.LSTM(3, 4, bias=False, batch_first=True)
    x = td.randn(2, 3, 3)
    want = model(x)[0]
    monkeypatch.setattr(nn.LSTM, "_as_one_operator", lambda self, x: True)
    np.testing.assert_allclose(model(x)[0].detach().numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6)
