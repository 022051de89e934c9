"""Initial values."""

import math

import numpy as np
import pytest

import tandem as td
from tandem.nn import init


def filled(fn, *shape, **kwargs):
    td.manual_seed(0)
    t = td.empty(*shape, requires_grad=True)
    assert fn(t, **kwargs) is t and t.is_leaf
    return t.detach().numpy()


def test_constants():
    assert (filled(init.constant_, 3, val=2.5) == 2.5).all() and (filled(init.ones_, 3) == 1).all()
    assert (filled(init.zeros_, 3) == 0).all() and (filled(init.eye_, 2, 3) == np.eye(2, 3)).all()
    w = filled(init.dirac_, 4, 2, 3, groups=2)
    x = np.random.default_rng(0).normal(size=(1, 4, 5)).astype(np.float32)
    np.testing.assert_allclose(td.conv1d(td.tensor(x), td.tensor(w), padding=1, groups=2).numpy(), x, rtol=1e-6)


def test_spreads():
    for fn, kwargs, limit, std in (
        (init.uniform_, {"a": -2.0, "b": 4.0}, 4.0, 6 / math.sqrt(12)),
        (init.normal_, {"mean": 1.0, "std": 0.5}, None, 0.5),
        (init.xavier_uniform_, {"gain": 2.0}, 2 * math.sqrt(6 / 300), 2 * math.sqrt(2 / 300)),
        (init.xavier_normal_, {}, None, math.sqrt(2 / 300)),
        (init.kaiming_uniform_, {"nonlinearity": "relu"}, math.sqrt(6 / 200), math.sqrt(2 / 200)),
        (init.kaiming_normal_, {"mode": "fan_out", "nonlinearity": "tanh"}, None, 5 / 3 / math.sqrt(100)),
        (init.trunc_normal_, {"std": 2.0, "a": -2.0, "b": 2.0}, 2.0, 2 * 0.5397),
    ):
        x = filled(fn, 100, 200, **kwargs)
        np.testing.assert_allclose(x.std(), std, rtol=0.03)
        if limit is not None:
            assert np.abs(x).max() <= limit * (1 + 1e-6) and np.abs(x).max() > 0.98 * limit


def test_orthogonal():
    for shape in ((6, 4), (4, 6), (3, 4, 2)):
        w = filled(init.orthogonal_, *shape, gain=2.0).reshape(shape[0], -1)
        product = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
        np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)


def test_sparse():
    x = filled(init.sparse_, 10, 5, sparsity=0.3, std=1.0)
    assert ((x == 0).sum(0) == 3).all()


def test_generators_repeat():
    a, b = (init.normal_(td.empty(5), generator=td.Generator().manual_seed(3)) for _ in range(2))
    assert a.tolist() == b.tolist()


def test_mistakes():
    for act in (
        lambda: init.xavier_uniform_(td.empty(3)), lambda: init.kaiming_normal_(td.empty(3, 3), mode="fan"),
        lambda: init.calculate_gain("other"), lambda: init.eye_(td.empty(3)), lambda: init.orthogonal_(td.empty(3)),
        lambda: init.sparse_(td.empty(3), 0.1), lambda: init.dirac_(td.empty(3)), lambda: init.dirac_(td.empty(3, 1, 1), 2),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            act()
