"""Values and gradients side by side with PyTorch."""

import numpy as np
import torch

import tandem as td


def to_torch(a, requires_grad=False):
    t = torch.from_numpy(np.array(a))
    return t.requires_grad_() if requires_grad and (t.is_floating_point() or t.is_complex()) else t


def compare(ours, theirs, *arrays, rtol=1e-6, atol=1e-8):
    """ours and theirs called on the arrays: outputs, and gradients of a random combination of the floating ones, must agree."""
    rng = np.random.default_rng(0)
    floating = [a.dtype.kind in "fc" for a in arrays]
    a = [td.tensor(x, requires_grad=f) for x, f in zip(arrays, floating, strict=True)]
    b = [to_torch(x, f) for x, f in zip(arrays, floating, strict=True)]
    got, expected = ours(*a), theirs(*b)
    got, expected = (x if isinstance(x, (tuple, list)) else (x,) for x in (got, expected))
    total_got = total_expected = None
    for g, e in zip(got, expected, strict=True):
        assert tuple(g.shape) == tuple(e.shape)
        np.testing.assert_allclose(g.detach().numpy(), e.detach().numpy(force=True), rtol=rtol, atol=atol)
        if e.requires_grad:
            weights = rng.normal(size=tuple(e.shape))
            if e.is_complex():
                weights = weights + 1j * rng.normal(size=tuple(e.shape))
            part, other = (g * td.tensor(weights)).sum(), (e * torch.from_numpy(np.array(weights))).sum()
            if e.is_complex():
                part, other = part.real, other.real
            total_got = part if total_got is None else total_got + part
            total_expected = other if total_expected is None else total_expected + other
    if total_got is None:
        return
    if total_got.requires_grad:
        total_got.backward()
    total_expected.backward()
    for x, y in zip(a, b, strict=True):
        if y.requires_grad and y.grad is not None:  # what never moves the result has no gradient here, and zeros there
            ours = np.zeros(tuple(y.shape)) if x.grad is None else x.grad.numpy()
            np.testing.assert_allclose(ours, y.grad.resolve_conj().numpy(force=True), rtol=rtol, atol=atol)
