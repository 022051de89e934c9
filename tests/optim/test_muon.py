"""Muon: updates that are orthogonal matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tandem as td
from tandem import nn, optim


def test_muon_makes_matrices_orthogonal():
    td.manual_seed(0)
    for shape in ((4, 6), (6, 4)):
        p = nn.Parameter(td.zeros(*shape))
        optimizer = optim.Muon([p], lr=1.0, weight_decay=0.0)
        p.grad = td.randn(*shape)
        optimizer.step()
        scale = math.sqrt(max(1, shape[0] / shape[1]))
        values = td.linalg.svdvals(p.detach() / scale).tolist()
        assert max(values) < 1.3
        assert min(values) > 0.5  # of the gradient: 0.3 to 3
    with pytest.raises(ValueError, match="Muon is for matrices"):
        optim.Muon([nn.Parameter(td.zeros(3))])
    with pytest.raises(ValueError, match="adjust_lr_fn"):
        optim.Muon([p], adjust_lr_fn="other")


def test_muon_trains_in_a_compiled_step():
    def run(wrap):
        p = nn.Parameter(td.arange(12.0).reshape(3, 4) / 6)
        optimizer = optim.Muon([p], lr=0.1)

        def step():
            optimizer.zero_grad()
            loss = ((p - 1) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(step)
        return [step().item() for _ in range(8)]

    eager, compiled = run(lambda f: f), run(td.compile)
    assert eager[-1] < 0.5 * eager[0]
    np.testing.assert_allclose(compiled, eager, rtol=0.05)
