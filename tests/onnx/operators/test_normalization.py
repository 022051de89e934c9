"""Normalisation, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "batch_normalization/batchnorm_example_training_mode",
        "groupnormalization/group_normalization_epsilon",
        "instance_normalization/instancenorm_epsilon",
        "layernormalization/layer_normalization_2d_axis0",
        "lpnormalization/l1normalization_axis_1",
        "lrn/lrn_default",
        "meanvariancenormalization/mvn",
        "rmsnormalization/rms_normalization_2d_axis0",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
