"""Optimisers with a ratio or a sign for each layer, against NumPy."""

from __future__ import annotations

import numpy as np

import tandem as td
from tandem import nn, optim

# -- rules that PyTorch does not have, against NumPy


def follow(optimizer, p, step):
    rng = np.random.default_rng(0)
    x = p.detach().numpy().copy()
    for t in range(1, 8):
        g = rng.normal(size=x.shape)
        p.grad = td.tensor(g)
        optimizer.step()
        x = step(t, x, g)
        np.testing.assert_allclose(p.detach().numpy(), x, rtol=1e-9)


def parameter():
    return nn.Parameter(td.tensor(np.random.default_rng(3).normal(size=(3, 4))))


def test_lion():
    m = 0

    def step(t, x, g):
        nonlocal m
        x = x * (1 - 0.1 * 0.3) - 0.1 * np.sign(0.9 * m + 0.1 * g)
        m = 0.99 * m + 0.01 * g
        return x

    p = parameter()
    follow(optim.Lion([p], lr=0.1, weight_decay=0.3), p, step)


def test_lamb():
    m = v = 0

    def step(t, x, g):
        nonlocal m, v
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        r = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6) + 0.2 * x
        return x - 0.1 * np.linalg.norm(x) / np.linalg.norm(r) * r

    p = parameter()
    follow(optim.LAMB([p], lr=0.1, betas=(0.9, 0.99), weight_decay=0.2), p, step)


def test_lars():
    b = 0

    def step(t, x, g):
        nonlocal b
        n = np.linalg.norm(x)
        local = 0.02 * n / (np.linalg.norm(g) + 0.1 * n + 1e-8)
        b = 0.9 * b + local * (g + 0.1 * x)
        return x - 0.5 * b

    p = parameter()
    follow(optim.LARS([p], lr=0.5, weight_decay=0.1, trust_coefficient=0.02), p, step)
    zero = nn.Parameter(td.zeros(2))
    zero.grad = td.ones(2)
    optim.LARS([zero], lr=0.5).step()
    assert zero.tolist() == [-0.5, -0.5]  # a ratio that has no meaning counts as 1
