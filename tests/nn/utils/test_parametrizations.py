"""Weights by norm, by largest singular value, orthogonal."""

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.nn.utils import parametrizations, parametrize
from tests.nn.cases import _step


def test_weight_norm():
    m = nn.Linear(2, 3)
    w = m.weight.detach().numpy().copy()
    nn.utils.parametrizations.weight_norm(m)
    np.testing.assert_allclose(m.weight.detach().numpy(), w, rtol=1e-6)
    with td.no_grad():
        m.parametrizations.weight.original0.fill_(2.0)
    np.testing.assert_allclose(np.linalg.norm(m.weight.detach().numpy(), axis=1), 2.0, rtol=1e-6)
    m.load_state_dict({"weight_g": td.ones(3, 1), "weight_v": td.tensor(w), "bias": td.zeros(3)})
    np.testing.assert_allclose(np.linalg.norm(m.weight.detach().numpy(), axis=1), 1.0, rtol=1e-6)


def test_spectral_norm():
    td.manual_seed(0)
    m = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 6))
    x = td.ones(1, 4)
    for _ in range(20):
        m(x)
    assert np.linalg.svd(m.weight.detach().numpy())[1][0] == pytest.approx(1.0, rel=1e-3)
    u = m.parametrizations.weight[0]._u
    before = u.tolist()
    m.eval()(x)
    assert before == u.tolist()
    m.train()
    (m(x) + m(x)).sum().backward()
    assert m.parametrizations.weight.original.grad is not None


@pytest.mark.parametrize("how", ["matrix_exp", "cayley", "householder"])
def test_orthogonal_matrices_stay_orthogonal(how):
    td.manual_seed(0)
    layer = parametrizations.orthogonal(nn.Linear(3, 5), orthogonal_map=how)
    optimizer = td.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        _step(layer, optimizer, td.randn(4, 3))
    w = layer.weight.detach().numpy()
    np.testing.assert_allclose(w.T @ w, np.eye(3), atol=1e-5)
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    other = parametrize.transfer_parametrizations_and_params(layer, nn.Linear(3, 5))
    np.testing.assert_allclose(other.weight.detach().numpy(), w, rtol=1e-6)
    layer.weight = td.nn.init.orthogonal_(td.empty(5, 3))
    w = layer.weight.detach().numpy()
    np.testing.assert_allclose(w.T @ w, np.eye(3), atol=1e-5)
