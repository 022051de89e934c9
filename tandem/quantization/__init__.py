"""Weights of fewer bits: quantised layers, training with their rounding, and what it costs in accuracy."""

from tandem.quantization.integer import IntegerConv, IntegerLinear
from tandem.quantization.layers import FakeQuantized, QuantizedConv, QuantizedLinear
from tandem.quantization.quantize import quantize
from tandem.quantization.report import Report, compare

__all__ = [
    "FakeQuantized",
    "IntegerConv",
    "IntegerLinear",
    "QuantizedConv",
    "QuantizedLinear",
    "Report",
    "compare",
    "quantize",
]
