"""Layers of fewer bits: their products, their sizes, training with their rounding, and reports."""

from __future__ import annotations

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.errors import ShapeError, ValueRangeError
from tandem.quantization import QuantizedConv, QuantizedLinear, compare


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
