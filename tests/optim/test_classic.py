"""Rprop and averaged SGD."""

from __future__ import annotations

import pytest

import tandem as td
from tandem import nn, optim


def test_rprop_and_asgd_say_what_is_wrong():
    p = nn.Parameter(td.zeros(2))
    with pytest.raises(ValueError, match="etas"):
        optim.Rprop([p], etas=(1.0, 1.2))
    with pytest.raises(ValueError, match="differentiable"):
        optim.ASGD([p], differentiable=True)
    with pytest.raises(TypeError, match="betas"):
        optim.Rprop([p], betas=(0.9, 0.9))


def test_asgd_averages_from_t0_on():
    p = nn.Parameter(td.zeros(1))
    optimizer = optim.ASGD([p], lr=1.0, lambd=0.0, t0=2)
    seen = []
    for g in (1.0, 1.0, 1.0, 3.0, -5.0):
        p.grad = td.tensor([g])
        optimizer.step()
        seen.append(p.item())
    assert seen == [-1, -2, -3, -6, -1]
    assert optimizer.state[p]["ax"].item() == pytest.approx((-6 - 1) / 2)
