"""Pruning, norms of weights by hooks, fusion."""

import copy

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.nn.utils import parametrizations, parametrize, prune


def test_pruned_elements_stay_zero_while_training():
    td.manual_seed(0)
    layer = prune.l1_unstructured(nn.Linear(4, 3), "weight", amount=0.5)
    zeros = (layer.weight == 0).numpy()
    assert zeros.sum() == 6
    smallest = np.sort(np.abs(layer.weight_orig.detach().numpy()).ravel())[5]
    assert (zeros == (np.abs(layer.weight_orig.detach().numpy()) <= smallest)).all()
    optimizer = td.optim.SGD(layer.parameters(), lr=0.1)
    step = td.compile(lambda x: _step(layer, optimizer, x))
    x, losses = td.randn(5, 4), []
    for _ in range(4):
        losses.append(step(x).item())
    assert losses[-1] < losses[0]
    layer(x)
    assert ((layer.weight == 0).numpy() == zeros).all()
    weight = layer.weight_orig
    prune.remove(layer, "weight")
    assert layer.weight is weight
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    assert ((layer.weight == 0).numpy() == zeros).all()


def _step(layer, optimizer, x):
    optimizer.zero_grad()
    loss = (layer(x) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss


def test_amounts_count_among_what_is_left():
    layer = nn.Linear(8, 4)
    prune.random_unstructured(layer, "weight", 16)
    prune.random_unstructured(layer, "weight", 0.5)
    assert int((layer.weight_mask == 0).sum()) == 24
    rows = prune.ln_structured(nn.Linear(8, 4), "weight", 1, n=2, dim=0)
    prune.random_structured(rows, "weight", 1, dim=0)
    assert sorted(rows.weight_mask.sum(1).tolist()) == [0, 0, 8, 8]
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    prune.global_unstructured([(model[0], "weight"), (model[1], "weight")], prune.L1Unstructured, amount=10)
    assert sum(int((m.weight == 0).sum()) for m in model) == 10
    assert prune.is_pruned(model)
    assert not prune.is_pruned(nn.Linear(2, 2))


def test_mistakes_in_pruning():
    layer = nn.Linear(3, 2)
    with pytest.raises(ValueError, match="only 6 to prune"):
        prune.l1_unstructured(layer, "weight", 7)
    with pytest.raises(ValueError, match="fraction"):
        prune.l1_unstructured(layer, "weight", 1.5)
    with pytest.raises(ValueError, match="not pruned"):
        prune.remove(layer, "weight")
    with pytest.raises(ValueError, match="two axes"):
        prune.ln_structured(layer, "bias", 1, 2, 0)
    with pytest.raises(ValueError, match="no parameter 'other'"):
        prune.identity(layer, "other")
    assert sorted(layer.state_dict()) == ["bias", "weight"]  # nothing happened


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


def test_synchronised_batch_norm_is_batch_norm():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Sequential(nn.BatchNorm2d(2)))
    x = td.randn(3, 1, 5, 5)
    made = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(model))
    assert isinstance(made[1], nn.SyncBatchNorm) and isinstance(made[2][0], nn.SyncBatchNorm)
    np.testing.assert_allclose(made(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-6)
    assert list(made.state_dict()) == list(model.state_dict())
    frozen = td.func.replace_all_batch_norm_modules_(model)
    assert frozen[1].running_mean is None
    wrapped = nn.DataParallel(model)
    assert wrapped(x).shape == (3, 2, 3, 3) and "module.0.weight" in wrapped.state_dict()
    with pytest.raises(td.UnsupportedError, match="not spread"):
        nn.DataParallel(model, device_ids=[0, 1])


def test_fused_layers():
    bn = nn.BatchNorm2d(4)
    conv = nn.Conv2d(2, 4, 3, bias=False)
    bn(conv(td.randn(8, 2, 6, 6)))
    with pytest.raises(ValueError, match="eval"):
        nn.utils.fuse_conv_bn_eval(conv, bn)
    x = td.randn(1, 2, 6, 6)
    fused = nn.utils.fuse_conv_bn_eval(conv.eval(), bn.eval())
    np.testing.assert_allclose(fused(x).detach().numpy(), bn(conv(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_functional_call_ties_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2, bias=False)
            self.b = nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    model, twice = Tied(), 2 * td.eye(2)
    call = nn.utils.stateless.functional_call
    assert call(model, {"a.weight": twice}, (td.ones(1, 2),)).tolist() == [[4, 4]]
    other = call(model, {"a.weight": twice}, (td.ones(1, 2),), tie_weights=False)
    np.testing.assert_allclose(other.detach().numpy(), model.b(td.ones(1, 2) * 2).detach().numpy(), rtol=1e-6)
