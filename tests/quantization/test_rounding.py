"""Training with rounded weights."""

from __future__ import annotations

import numpy as np

import tandem as td
from tandem import nn
from tandem.quantization import FakeQuantized


def test_training_with_rounding_ends_where_quantising_begins():
    td.manual_seed(0)
    model = td.quantize(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)), 4, training=True)
    assert isinstance(model[0], FakeQuantized)
    optimizer = td.optim.Adam(model.parameters(), 0.02)
    x = td.randn(64, 4)
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(40):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    final = td.quantize(model.eval())
    assert final[0].bits == 4
    np.testing.assert_allclose(final(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-3, atol=1e-4)
