"""Complex numbers against PyTorch: values, and gradients in its convention."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import tandem as td
from tests.oracle.compare import compare

pytestmark = pytest.mark.oracle
RNG = np.random.default_rng(31)


def normal(*shape):
    return RNG.normal(size=shape) + 1j * RNG.normal(size=shape)


UNARY = [
    "abs", "angle", "conj_physical", "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "square",
    "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "sigmoid", "sum", "prod",
    "mean", "real", "imag", "view_as_real", "neg",
]  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    compare(getattr(td, name), getattr(torch, name), normal(3, 4))


def test_sign():
    compare(td.sign, torch.sgn, normal(3, 4))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "matmul", "vdot"])
def test_binary(name):
    x, y = (normal(4), normal(4)) if name == "vdot" else (normal(4, 4), normal(4, 4))
    compare(getattr(td, name), getattr(torch, name), x, y)
    if name not in ("matmul", "vdot"):
        compare(getattr(td, name), getattr(torch, name), x, np.abs(y) + 1)
        compare(getattr(td, name), getattr(torch, name), np.abs(x) + 1, y)


def test_from_parts():
    x, y = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
    compare(td.complex, torch.complex, x, y)
    compare(td.polar, torch.polar, np.abs(x), y)
    compare(td.view_as_complex, torch.view_as_complex, RNG.normal(size=(3, 2)))


def test_running_and_products():
    z, w = normal(3, 4), normal(3, 4)
    compare(lambda x: td.cumsum(x, 1), lambda x: torch.cumsum(x, 1), z)
    compare(lambda x: td.cumprod(x, 1), lambda x: torch.cumprod(x, 1), z)
    compare(lambda x, y: td.einsum("ij,kj->ik", x, y), lambda x, y: torch.einsum("ij,kj->ik", x, y), z, w)
    compare(lambda x, y: td.vecdot(x, y), lambda x, y: torch.linalg.vecdot(x, y), z, w)
    compare(lambda x: td.var(x, correction=1), torch.var, z)
    compare(lambda x: td.norm(x), lambda x: torch.linalg.vector_norm(x), z)


@pytest.mark.parametrize(
    ("kind", "options"), [("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {}), ("RMSprop", {})]
)
def test_optimizers(kind, options):
    start = normal(5)
    ours, theirs = td.tensor(start, requires_grad=True), torch.tensor(start, requires_grad=True)
    a, b = getattr(td.optim, kind)([ours], lr=0.1, **options), getattr(torch.optim, kind)([theirs], lr=0.1, **options)
    for _ in range(5):
        for p, optimizer in ((ours, a), (theirs, b)):
            optimizer.zero_grad()
            ((p * p - (1 + 2j)).abs() ** 2).sum().backward()
            optimizer.step()
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-7)


def test_writes_through_parts():
    def f(z):
        y = z * 1
        y.real.mul_(2)
        y.imag[0] = 3.0
        return y * y

    compare(f, f, normal(3, 2))
