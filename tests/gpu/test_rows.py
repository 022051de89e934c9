"""Kernels over many rows on a device that also sum across them, or go on with the gradient of a loss: the CPU's results."""

import numpy as np
import pytest

import tandem as td
from tandem.nn import functional as F

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]


def close(have, want, tolerance: float):
    for a, b in zip(have, want, strict=True):
        a, b = a.detach().float().cpu().numpy(), b.detach().float().cpu().numpy()
        assert np.linalg.norm(a - b) <= tolerance * np.linalg.norm(b)


def normalised(x, w, b, g, r):
    y = F.layer_norm(x, x.shape[-1:], w, b)
    z = (y * y + r).to(x.dtype)
    return td.autograd.grad((z * g).sum(), [x, w, b])


@pytest.mark.parametrize("shape", [(4096, 768), (9, 300, 256), (2500, 1000), (2049, 136), (3, 1000, 1024), (2048, 512)])
@pytest.mark.parametrize("dtype", [td.float32, td.bfloat16])
@pytest.mark.parametrize("compiles", [False, True])
def test_weights_of_layer_norm(shape, dtype, compiles):
    td.manual_seed(0)
    x, g, r = (td.randn(*shape).to(dtype) for _ in range(3))
    w, b = td.randn(shape[-1]), td.randn(shape[-1])
    want = normalised(x.requires_grad_(), w.requires_grad_(), b.requires_grad_(), g, r)
    there = [v.detach().cuda() for v in (x, w, b, g, r)]
    for v in there[:3]:
        v.requires_grad_()
    f = td.compile(normalised) if compiles else normalised
    for _ in range(4 if compiles else 1):
        close(f(*there), want, 1e-5 if dtype is td.float32 else 2e-2)


def test_a_program_serves_other_numbers_of_rows():
    td.manual_seed(0)
    f = td.compile(normalised)
    for rows in (3000, 4096, 5, 2049, 1):
        x, g, r = (td.randn(rows, 256) for _ in range(3))
        w, b = td.randn(256), td.randn(256)
        want = normalised(x.requires_grad_(), w.requires_grad_(), b.requires_grad_(), g, r)
        there = [v.detach().cuda() for v in (x, w, b, g, r)]
        for v in there[:3]:
            v.requires_grad_()
        close(f(*there), want, 1e-5)


def test_strided_rows_are_summed_as_well():
    td.manual_seed(0)
    x, g = td.randn(2400, 3, 512), td.randn(2400, 512)
    w = td.randn(512)

    def grads(x, w, g):
        return td.autograd.grad((F.layer_norm(x[:, 1], (512,), w) * g).sum(), [x, w])

    want = grads(x.requires_grad_(), w.requires_grad_(), g)
    close(grads(x.detach().cuda().requires_grad_(), w.detach().cuda().requires_grad_(), g.cuda()), want, 1e-5)


@pytest.mark.parametrize("classes", [1000, 50257, 40000])
@pytest.mark.parametrize("rows", [300, 10])
@pytest.mark.parametrize("low", [False, True])
def test_gradients_of_a_loss_over_classes(classes, rows, low):
    td.manual_seed(0)
    x, w = td.randn(rows, 32), td.randn(classes, 32)
    y = td.randint(0, classes, (rows,))
    y[::7] = -100

    def step(x, w, y):
        loss = F.cross_entropy(F.linear(x, w), y)
        return loss, *td.autograd.grad(loss, [x, w])

    want = step(x.requires_grad_(), w.requires_grad_(), y)
    there = x.detach().cuda().requires_grad_(), w.detach().cuda().requires_grad_(), y.cuda()
    compiled = td.compile(step)
    for _ in range(4):
        with td.autocast("cuda", td.bfloat16, enabled=low):
            have = compiled(*there)
        close(have, want, 2e-2 if low else 1e-5)
