"""Gradients against differences."""

import pytest

import tandem as td


def test_gradcheck():
    x, w = (td.randn(*s, dtype=td.float64, requires_grad=True) for s in ((2, 3), (3, 2)))
    assert td.autograd.gradcheck(lambda x, w: td.tanh(x @ w), (x, w))
    assert td.autograd.gradgradcheck(lambda x: td.exp(x) * x, x)
    z = td.tensor([1 + 2j, 0.3 - 0.4j], dtype=td.complex128, requires_grad=True)
    assert td.testing.gradcheck(lambda z: td.angle(z) + (z * z.conj()).real, z)

    class Wrong(td.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    with pytest.raises(AssertionError, match="finite differences give"):
        td.testing.gradcheck(Wrong.apply, x)
    assert not td.testing.gradcheck(Wrong.apply, x, raise_exception=False)
    with pytest.raises(ValueError, match="float64"):
        td.testing.gradcheck(td.sin, td.ones(2, requires_grad=True))
