"""Pruning, norms of weights by hooks, fusion."""

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.nn.utils import prune
from tests.nn.cases import _step


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
