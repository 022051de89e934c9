"""Gradients cut off at a norm or a value."""

import numpy as np
import pytest

import tandem as td
from tandem import nn


def with_gradients(*gradients):
    made = []
    for g in gradients:
        p = nn.Parameter(td.zeros(len(g)))
        p.grad = td.tensor(g)
        made.append(p)
    return made


def test_clip_grad_norm():
    ps = [*with_gradients([3.0, 0.0], [4.0]), nn.Parameter(td.zeros(1))]
    assert nn.utils.clip_grad_norm_(iter(ps), 1.0).item() == 5.0
    np.testing.assert_allclose(np.concatenate([p.grad.numpy() for p in ps[:2]]), [0.6, 0, 0.8], rtol=1e-5)
    assert nn.utils.clip_grad_norm_(ps[0], 10.0).item() == pytest.approx(0.6, rel=1e-5)
    assert ps[0].grad.tolist()[0] == pytest.approx(0.6, rel=1e-5)
    assert nn.utils.clip_grad_norm_([nn.Parameter(td.zeros(1))], 1.0).item() == 0.0
    assert nn.utils.get_total_norm([td.tensor([-3.0]), td.tensor([2.0])], float("inf")).item() == 3.0
    bad = with_gradients([float("nan")])
    with pytest.raises(RuntimeError, match="not finite"):
        nn.utils.clip_grad_norm_(bad, 1.0, error_if_nonfinite=True)


def test_clip_grad_value():
    (p,) = with_gradients([-3.0, 0.5, 7.0])
    nn.utils.clip_grad_value_([p], 1.0)
    assert p.grad.tolist() == [-1.0, 0.5, 1.0]
