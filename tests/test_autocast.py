"""Autocast."""

import pytest

import tandem as td


def test_losses_under_autocast_have_float32():
    x = td.randn(4, 10).bfloat16().requires_grad_()
    y = td.tensor([1, 2, 3, 4])
    F = td.nn.functional
    with td.autocast("cpu", td.bfloat16):
        losses = [
            F.cross_entropy(x, y),
            F.cross_entropy(x, y, label_smoothing=0.1),
            F.cross_entropy(x, td.softmax(x, -1).detach()),
            F.nll_loss(x, y),
            F.mse_loss(x, td.zeros(4, 10)),
            F.binary_cross_entropy_with_logits(x, td.ones(4, 10, dtype=td.bfloat16)),
        ]
    assert {loss.dtype for loss in losses} == {td.float32}
    expected = F.cross_entropy(x.detach().float(), y).item()
    assert losses[0].item() == pytest.approx(expected, rel=1e-6)
    losses[0].backward()
    assert x.grad.dtype is td.bfloat16
    assert F.cross_entropy(x, y).dtype is td.bfloat16
