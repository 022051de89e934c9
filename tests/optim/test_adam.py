"""Adam and its relatives."""

from __future__ import annotations

import numpy as np
import pytest

import tandem as td
from tandem import nn, optim


def test_sparse_adam_leaves_other_rows_alone():
    p = nn.Parameter(td.ones(4, 2))
    o = optim.SparseAdam([p], lr=0.1)
    for rows in ([1], [1, 3]):
        p.grad = td.zeros(4, 2)
        p.grad[rows] = 1.0
        o.step()
    assert p[0].tolist() == p[2].tolist() == [1.0, 1.0] and p[1, 0].item() < p[3, 0].item() < 1.0
    assert not o.state[p]["exp_avg"][0].any()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam_in_float64(amsgrad, compiled):
    start = np.linspace(-1.0, 2.0, 7)
    p = td.tensor(start, requires_grad=True)
    optimizer = td.optim.Adam([p], lr=0.1, betas=(0.87, 0.993), eps=1e-9, amsgrad=amsgrad)

    def step():
        optimizer.zero_grad()
        (p**2).sum().backward()
        optimizer.step()

    run = td.compile(step) if compiled else step
    x, m, v, largest = start.copy(), 0.0, 0.0, 0.0
    for t in range(1, 6):
        run()
        g = 2 * x
        m, v = 0.87 * m + 0.13 * g, 0.993 * v + 0.007 * g * g
        largest = np.maximum(largest, v)
        root = np.sqrt((largest if amsgrad else v) / (1 - 0.993**t))
        x = x - 0.1 * (m / (1 - 0.87**t)) / (root + 1e-9)
    np.testing.assert_allclose(p.detach().numpy(), x, rtol=1e-13)
