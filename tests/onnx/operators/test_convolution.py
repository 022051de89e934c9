"""Convolutions, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "causal_conv_with_state/causal_conv_with_state_basic",
        "causal_conv_with_state/causal_conv_with_state_kernel_size_one",
        "col2im/col2im_pads",
        "conv/conv_with_strides_no_padding",
        "convtranspose/convtranspose_kernel_shape",
        "deformconv/deform_conv_with_mask_bias",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
