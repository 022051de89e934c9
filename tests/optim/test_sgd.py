"""Stochastic gradient descent."""

from __future__ import annotations

import pytest

import tandem as td
from tandem import nn, optim


def test_updates_count_as_changes_for_backward():
    p = nn.Parameter(td.ones(2))
    o = optim.SGD([p], lr=0.1)
    loss = (p * p).sum()
    p.grad = td.ones(2)
    o.step()
    with pytest.raises(td.AutogradError, match="changed in place"):
        loss.backward()


def test_state_and_gradients_lie_as_their_parameters_do():
    p = td.nn.Parameter(td.randn(2, 4, 3, 3).to(memory_format=td.channels_last))
    (p * p).sum().backward()
    optimizer = td.optim.SGD([p], lr=0.1, momentum=0.9)
    optimizer.step()
    assert p.grad.stride() == p.stride() == optimizer.state[p]["momentum_buffer"].stride()
