"""Averages of weights."""

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.optim import swa_utils as swa


def models(values):
    m = nn.Linear(1, 1, bias=False)
    for v in values:
        with td.no_grad():
            m.weight.fill_(v)
        yield m


def averaged(values, **kwargs):
    made = None
    for m in models(values):
        made = swa.AveragedModel(m, **kwargs) if made is None else made
        made.update_parameters(m)
    return made


def test_plain_and_moving_averages():
    assert averaged([1.0, 2.0, 6.0]).module.weight.item() == pytest.approx(3.0)
    ema = averaged([1.0, 2.0, 6.0], multi_avg_fn=swa.get_ema_multi_avg_fn(0.5))
    assert ema.module.weight.item() == pytest.approx(3.75) and ema.n_averaged.item() == 3
    own = averaged([1.0, 2.0, 6.0], avg_fn=lambda a, b, n: a.maximum(b))
    assert own.module.weight.item() == 6.0 and own(td.ones(1, 1)).item() == 6.0


def test_buffers_are_copied_or_averaged():
    m = nn.BatchNorm1d(2)
    for use in (False, True):
        average = swa.AveragedModel(m, use_buffers=use)
        for value in (1.0, 3.0):
            m.running_mean.fill_(value)
            average.update_parameters(m)
        assert average.module.running_mean.tolist() == [2.0, 2.0] if use else [3.0, 3.0]


def test_statistics_are_computed_anew():
    m = nn.Sequential(nn.BatchNorm1d(2)).eval()
    data = [np.random.default_rng(i).normal(size=(4, 2)).astype(np.float32) for i in range(3)]
    swa.update_bn([(td.tensor(x), None) for x in data], m)
    np.testing.assert_allclose(m[0].running_mean.numpy(), np.mean([x.mean(0) for x in data], 0), rtol=1e-4)
    assert not m.training and m[0].momentum == 0.1
    swa.update_bn([], nn.Linear(1, 1))
