"""Layers of fewer bits: their products, their sizes, training with their rounding, and reports."""

from __future__ import annotations

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.errors import ShapeError, ValueRangeError
from tandem.ops.quantized import unpack_int4
from tandem.quantization import QuantizedConv, QuantizedLinear, compare


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


def test_a_network_is_quantised_layer_by_layer_and_saved_by_name(tmp_path):
    td.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)).eval()
    made = td.quantize(model, 8)
    assert (
        isinstance(made[0], QuantizedConv) and isinstance(made[3], QuantizedLinear) and isinstance(model[3], nn.Linear)
    )
    x = td.randn(4, 3, 6, 6)
    report = compare(model, made, x)
    assert report.error < 0.02 and report.agreement == 1.0 and report.bytes_before > 3.5 * report.bytes_after
    assert "x smaller)" in str(report) and set(report.layers) == {"0", "3"}
    td.save(made.state_dict(), tmp_path / "small.safetensors")
    other = td.quantize(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)), 8)
    other.load_state_dict(td.load(tmp_path / "small.safetensors"))
    np.testing.assert_array_equal(other(x).detach().numpy(), made(x).detach().numpy())
    assert isinstance(td.quantize(model, 8, skip=["3"])[3], nn.Linear)


def test_a_language_model_generates_with_fewer_bits():
    td.manual_seed(0)
    model = td.models.Llama(vocabulary=20, context=32, layers=1, heads=2, width=16, hidden=32).eval()
    made = td.quantize(model, 8, skip=["lm_head"])
    assert made.generate([[1, 2, 3]], 5, temperature=0)[0][:3] == [1, 2, 3]
    assert compare(model, made, td.tensor([[1, 2, 3]])).error < 0.02


def test_mistakes_are_named():
    with pytest.raises(ValueRangeError, match="bits is 5; it may be 8 or 4"):
        td.quantize(nn.Linear(4, 4), 5)
    with pytest.raises(ShapeError, match="6 weights of an output cannot be groups of 4"):
        td.quantize(nn.Linear(6, 4), 8, 4)
    with pytest.raises(
        ShapeError, match="27 weights of an output cannot be groups of 27; 4 bits need an even number\n  fix: name the"
    ):
        td.quantize(nn.Conv2d(3, 8, 3), 4)
    with pytest.raises(ValueRangeError, match="has no linear layer or convolution"):
        td.quantize(nn.ReLU())
