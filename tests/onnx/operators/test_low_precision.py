"""Operators of few bits, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "bitcast/bitcast_2d_float32_to_int32",
        "convinteger/convinteger_with_padding",
        "dequantizelinear/dequantizelinear_int16",
        "dynamicquantizelinear/dynamicquantizelinear_max_adjusted",
        "matmulinteger/matmulinteger",
        "qlinearconv/qlinearconv",
        "qlinearmatmul/qlinearmatmul_2D_int8_float32",
        "quantizelinear/quantizelinear_uint4",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
