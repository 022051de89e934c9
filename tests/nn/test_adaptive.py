"""Adaptive softmax and fractional pools."""

import numpy as np
import pytest

import tandem as td


def test_adaptive_softmax_is_a_distribution():
    layer = td.nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[4, 10], div_value=2.0)
    x = td.randn(5, 8)
    probabilities = layer.log_prob(x)
    np.testing.assert_allclose(td.exp(probabilities).sum(1).detach().numpy(), 1, rtol=1e-5)
    target = td.tensor([0, 3, 5, 11, 19])
    output, loss = layer(x, target)
    np.testing.assert_allclose(
        output.detach().numpy(), probabilities.detach().numpy()[np.arange(5), target.numpy()], rtol=1e-5
    )
    loss.backward()
    assert layer.head.weight.grad is not None and layer.predict(x).shape == (5,)
    assert layer(x[0], target[0]).output.shape == ()
    with pytest.raises(ValueError, match="cutoffs"):
        td.nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[10, 4])


def test_fractional_pool_layers():
    pooled, index = td.nn.FractionalMaxPool2d(2, output_size=(3, 4), return_indices=True)(td.randn(2, 3, 9, 9))
    assert pooled.shape == index.shape == (2, 3, 3, 4)
    assert td.nn.FractionalMaxPool3d(2, output_ratio=0.5)(td.randn(1, 6, 6, 6)).shape == (1, 3, 3, 3)
