"""Products of bfloat16: sums in float32, rounded once."""

import numpy as np
import pytest

import tandem as td


def rounded(x):
    return x.to(td.bfloat16)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 7, 13, 100])
@pytest.mark.parametrize("k, n", [(1, 8), (33, 40), (64, 32), (130, 97), (256, 15)])
@pytest.mark.parametrize("transposed", [False, True])
def test_products(m, k, n, transposed):
    td.manual_seed(m * k)
    a = rounded(td.randn(m, k))
    b = rounded(td.randn(n, k)).T if transposed else rounded(td.randn(k, n))
    exact = a.to(td.float64).numpy() @ b.to(td.float64).numpy()
    size = np.abs(a.to(td.float64).numpy()) @ np.abs(b.to(td.float64).numpy())
    found = (a @ b).to(td.float64).numpy()
    assert (np.abs(found - exact) <= np.abs(exact) * 2**-8 + size * k * 2**-24 + 1e-30).all()


def test_layers_and_left_sides_of_other_layouts():
    td.manual_seed(0)
    layer = td.nn.Linear(48, 40).to(td.bfloat16)
    frozen = td.export.freeze(layer, rounded(td.randn(2, 48)))
    for rows in (1, 3, 9, 64):
        x = rounded(td.randn(rows, 48))
        wide = x.to(td.float32) @ layer.weight.detach().to(td.float32).T + layer.bias.detach().to(td.float32)
        for fn in (layer, frozen, td.compile(layer)):
            np.testing.assert_allclose(fn(x).detach().to(td.float32).numpy(), wide.numpy(), rtol=0.02, atol=0.02)
    a, b = rounded(td.randn(30, 20)).T, rounded(td.randn(30, 24))
    exact = a.to(td.float32).numpy() @ b.to(td.float32).numpy()
    np.testing.assert_allclose((a @ b).to(td.float32).numpy(), exact, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("m", [1, 9, 64, 70, 130])
@pytest.mark.parametrize("k", [1, 2, 63, 128, 131])
@pytest.mark.parametrize("step", [1, 2])
def test_left_sides_whose_columns_are_contiguous(m, k, step):
    """As in gradients of weights: their pairs are made from two columns at once."""
    td.manual_seed(m * k)
    whole = rounded(td.randn(k, m * step + 3))
    a, b = whole[:, : m * step : step].T, rounded(td.randn(k, 40))
    expected = a.to(td.float64) @ b.to(td.float64)
    np.testing.assert_allclose(expected, (a @ b).to(td.float64), rtol=8e-3, atol=1e-2)
