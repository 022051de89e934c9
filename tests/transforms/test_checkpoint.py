"""Backward that recomputes."""

import numpy as np
import pytest

import tandem as td
from tandem import nn


def close(a, b, **tolerance):
    np.testing.assert_allclose(a.detach().numpy(), np.asarray(b), **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


# -- checkpoint


@pytest.mark.parametrize("compiled", [False, True])
def test_checkpoint_gives_the_same_gradients(compiled):
    td.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.5)) for _ in range(3)]
    x = td.tensor(np.random.default_rng(3).normal(size=(16, 8)).astype(np.float32))

    def run(again: bool):
        def step():
            y = x
            for layer in layers:
                y = td.checkpoint(layer, y) if again else layer(y)
            y.square().sum().backward()
            return y

        td.manual_seed(1)
        y = (td.compile(step) if compiled else step)()
        grads = [p.grad.numpy().copy() for layer in layers for p in layer.parameters()]
        for layer in layers:
            layer.zero_grad()
        return y.detach().numpy(), grads

    (y, grads), (again, same) = run(False), run(True)
    np.testing.assert_allclose(again, y, rtol=1e-5)
    for a, b in zip(same, grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_checkpoint_takes_less_memory_in_a_program():
    x = td.tensor(np.random.default_rng(3).normal(size=(256, 64)).astype(np.float32))
    weights = [td.eye(64, requires_grad=True) for _ in range(8)]

    def block(y, ws):
        for w in ws:
            y = (y @ w).tanh()
        return y

    def peak(again: bool) -> int:
        @td.compile
        def step():
            y = x
            for i in range(0, 8, 4):
                y = td.checkpoint(block, y, weights[i : i + 4]) if again else block(y, weights[i : i + 4])
            return td.autograd.grad(y.sum(), weights)

        step()
        return step.memory()["peak"]

    assert peak(True) < 0.9 * peak(False)


def test_checkpoint_to_second_order():
    x = td.tensor([0.5, 1.5], requires_grad=True)
    (g,) = td.autograd.grad(td.checkpoint(lambda a: a.sin().exp(), x).sum(), [x], create_graph=True)
    (h,) = td.autograd.grad(g.sum(), [x])
    v = x.detach().numpy()
    close(h, np.exp(np.sin(v)) * (np.cos(v) ** 2 - np.sin(v)))
