"""Rates that adapt to each element: against NumPy."""

import numpy as np
import pytest

import tandem as td
from tandem import nn, optim


def follow(optimizer, p, step):
    """Seven steps with the same gradients, here and by the formula."""
    rng = np.random.default_rng(0)
    x = p.detach().numpy().copy()
    for t in range(1, 8):
        g = rng.normal(size=x.shape)
        p.grad = td.tensor(g)
        optimizer.step()
        x = step(t, x, g)
        np.testing.assert_allclose(p.detach().numpy(), x, rtol=1e-9)


@pytest.fixture
def parameter():
    return nn.Parameter(td.tensor(np.random.default_rng(3).normal(size=(3, 4))))


def test_adagrad(parameter):
    total = 0.3

    def step(t, x, g):
        nonlocal total
        g = g + 0.1 * x
        total = total + g * g
        return x - 0.5 / (1 + (t - 1) * 0.2) * g / (np.sqrt(total) + 1e-10)

    follow(
        optim.Adagrad([parameter], lr=0.5, lr_decay=0.2, weight_decay=0.1, initial_accumulator_value=0.3),
        parameter,
        step,
    )


def test_adadelta(parameter):
    squares = changes = 0

    def step(t, x, g):
        nonlocal squares, changes
        squares = 0.8 * squares + 0.2 * g * g
        delta = np.sqrt(changes + 1e-5) / np.sqrt(squares + 1e-5) * g
        changes = 0.8 * changes + 0.2 * delta * delta
        return x - 2.0 * delta

    follow(optim.Adadelta([parameter], lr=2.0, rho=0.8, eps=1e-5), parameter, step)


@pytest.mark.parametrize("momentum", [0.0, 0.7])
@pytest.mark.parametrize("centered", [False, True])
def test_rmsprop(parameter, centered, momentum):
    squares = mean = buffer = 0

    def step(t, x, g):
        nonlocal squares, mean, buffer
        squares = 0.9 * squares + 0.1 * g * g
        mean = 0.9 * mean + 0.1 * g
        size = np.sqrt(squares - mean * mean if centered else squares) + 1e-6
        buffer = momentum * buffer + g / size
        return x - 0.1 * buffer

    follow(
        optim.RMSprop([parameter], lr=0.1, alpha=0.9, eps=1e-6, centered=centered, momentum=momentum), parameter, step
    )
