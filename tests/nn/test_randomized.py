"""Functions with random numbers inside."""

import numpy as np
import pytest

import tandem as td
import tandem.nn.functional as F
from tandem import nn


def test_rrelu_draws_slopes_while_training():
    td.manual_seed(0)
    layer = nn.RReLU(0.2, 0.4)
    out = layer(td.full((1000,), -1.0)).numpy()
    assert -0.4 <= out.min() < -0.39 and -0.21 < out.max() <= -0.2
    assert layer.eval()(td.tensor([-1.0, 1.0])).tolist() == pytest.approx([-0.3, 1.0])


def test_gumbel_softmax():
    td.manual_seed(0)
    logits = td.tensor(np.tile(np.log([0.1, 0.2, 0.7]), (4000, 1)), requires_grad=True)
    hard = F.gumbel_softmax(logits, hard=True)
    np.testing.assert_allclose(hard.mean(0).detach().numpy(), [0.1, 0.2, 0.7], atol=0.03)
    assert set(np.unique(hard.detach().numpy())) == {0.0, 1.0}
    (hard * td.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert np.abs(logits.grad.numpy()).sum() > 0
    np.testing.assert_allclose(F.gumbel_softmax(logits, tau=0.5).sum(-1).detach().numpy(), 1.0, rtol=1e-5)
