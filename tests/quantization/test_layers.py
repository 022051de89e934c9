"""Quantised layers."""

from __future__ import annotations

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.ops.quantized import unpack_int4
from tandem.quantization import QuantizedLinear


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("group", [None, 16])
def test_a_product_is_that_of_the_weights_it_stands_for(bits, group):
    td.manual_seed(0)
    layer = nn.Linear(48, 10)
    made = QuantizedLinear(layer, bits, group)
    w = made.dequantized().numpy()
    step = made.scale.numpy().repeat((group or 48), 1)
    assert (np.abs(w - layer.weight.detach().numpy()) <= step * 0.5001).all(), (
        "each weight is rounded to the nearest number"
    )
    assert made.weight.numel() * made.weight.dtype.itemsize == 480 * bits // 8
    for rows in (1, 3, 9):
        x = td.randn(rows, 48)
        expected = x.numpy() @ w.T + layer.bias.detach().numpy()
        np.testing.assert_allclose(made(x).numpy(), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(td.compile(made)(x).numpy(), expected, rtol=1e-4, atol=1e-5)
    assert made(td.randn(2, 1, 48)).shape == (2, 1, 10)


def test_gradients_pass_through_a_quantised_layer():
    made = QuantizedLinear(nn.Linear(8, 4), 8, None)
    x = td.randn(2, 8, requires_grad=True)
    made(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.tile(made.dequantized().numpy().sum(0), (2, 1)), rtol=1e-4, atol=1e-5)


def test_halves_of_a_byte_are_the_halves_of_a_group():
    packed = td.tensor([[[0x1F, 0x80]]], dtype=td.uint8)
    assert unpack_int4(packed).tolist() == [[[7.0, -8.0, -7.0, 0.0]]]
