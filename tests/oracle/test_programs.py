"""Programs written for PyTorch, run with it and with the import changed: losses agree, eagerly and compiled."""

import importlib
import inspect

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import torch.optim.swa_utils
import torch.utils.checkpoint
import torch.utils.data

import tandem as td

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
FILES = ("vision", "language", "decisions", "training")
MODULES = [importlib.import_module(f"tests.oracle.programs.{name}") for name in FILES]
PROGRAMS = {
    name: fn
    for module in MODULES
    for name, fn in vars(module).items()
    if inspect.isfunction(fn) and fn.__module__ == module.__name__
}


def kit(package, compile_step: bool):
    """What programs are written with: the library, random tensors and weights, and a loop of four training steps."""
    rng = np.random.default_rng(0)

    def tensor(*shape):
        return package.tensor(rng.normal(size=shape).astype(np.float32))

    def init(module):
        own = np.random.default_rng(1)
        with package.no_grad():
            for _, p in module.named_parameters():
                p.copy_(package.tensor(own.normal(size=tuple(p.shape)).astype(np.float32) * 0.1))
        return module

    compiled = package.compile if compile_step else lambda fn: fn

    def run(module, loss_fn, optimizer, steps=4):
        def step():
            optimizer.zero_grad()
            loss = loss_fn()
            loss.backward()
            optimizer.step()
            return loss

        step = compiled(step)
        return [step().item() for _ in range(steps)]

    return package, package.nn, package.nn.functional, tensor, init, run, compiled, rng


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    expected = np.array(PROGRAMS[name](kit(torch, False)), dtype=float)
    assert np.isfinite(expected).all()
    for compile_step in (False, True):
        found = np.array(PROGRAMS[name](kit(td, compile_step)), dtype=float)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
