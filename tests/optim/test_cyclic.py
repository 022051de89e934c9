"""Rates that go up and down."""

import pytest

import tandem as td
from tandem import nn, optim
from tandem.optim import lr_scheduler as S


def optimizer(lr=1.0):
    return optim.SGD([nn.Parameter(td.zeros(1))], lr=lr, momentum=0.9)


def test_one_cycle_moves_the_momentum():
    o = optimizer()
    schedule = S.OneCycleLR(o, 1.0, total_steps=10, base_momentum=0.8, max_momentum=0.9)
    seen = []
    for _ in range(9):
        schedule.step()
        seen.append((o.param_groups[0]["lr"], o.param_groups[0]["momentum"]))
    assert max(seen)[1] == pytest.approx(0.8) and min(seen)[1] == pytest.approx(0.9)
    adam = optim.Adam([nn.Parameter(td.zeros(1))])
    S.CyclicLR(adam, 0.1, 1.0, 2)
    assert adam.param_groups[0]["betas"] == (0.9, 0.999)
