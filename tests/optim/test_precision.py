"""Rules lose nothing on float64 parameters: settings and corrections are computed in float64."""

import numpy as np
import pytest

import tandem as td


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
