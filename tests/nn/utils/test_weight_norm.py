"""Weight and spectral norm by hooks."""

import numpy as np
import pytest

import tandem as td
from tandem import nn


def test_weight_norm_by_hooks_and_back():
    layer = nn.Conv1d(2, 3, 3)
    x = td.randn(1, 2, 5)
    expected, before = layer(x).detach(), layer.weight.detach().clone()
    nn.utils.weight_norm(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight_g", "weight_v"]
    np.testing.assert_allclose(layer(x).detach().numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    with td.no_grad():
        layer.weight_g.mul_(2)
    layer(x).sum().backward()
    assert layer.weight_g.grad is not None
    nn.utils.remove_weight_norm(layer)
    np.testing.assert_allclose(layer.weight.detach().numpy(), 2 * before.numpy(), rtol=1e-5)
    with pytest.raises(ValueError, match="no weight_norm"):
        nn.utils.remove_weight_norm(layer)


def test_spectral_norm_by_hooks_and_back():
    td.manual_seed(0)
    layer = nn.utils.spectral_norm(nn.Linear(4, 6))
    x = td.randn(2, 4)
    for _ in range(30):
        y = layer(x)
    y.sum().backward()
    assert layer.weight_orig.grad is not None
    assert td.linalg.svdvals(layer.weight.detach())[0].item() == pytest.approx(1, rel=1e-3)
    kept = layer.weight.tolist()
    nn.utils.remove_spectral_norm(layer)
    np.testing.assert_allclose(layer.weight.tolist(), kept, rtol=1e-5)
    assert sorted(layer.state_dict()) == ["bias", "weight"]
