"""Layers that normalise."""

import copy

import numpy as np
import pytest

import tandem as td
from tandem import nn


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


RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.normal(size=shape)


def test_batch_norm_follows_the_data():
    layer = nn.BatchNorm1d(2, momentum=None)
    data = [normal(8, 2).astype(np.float32) for _ in range(3)]
    for x in data:
        layer(td.tensor(x))
    assert layer.num_batches_tracked.item() == 3
    np.testing.assert_allclose(layer.running_mean.numpy(), np.mean([x.mean(0) for x in data], 0), rtol=1e-4, atol=1e-6)
    layer.eval()(td.tensor(data[0]))
    assert layer.num_batches_tracked.item() == 3
    layer.reset_running_stats()
    assert layer.running_var.tolist() == [1.0, 1.0] and layer.num_batches_tracked.item() == 0
    with pytest.raises(ValueError, match="2 or 3 axes"):
        layer(td.ones(2))
