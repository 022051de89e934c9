"""Resampling, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "affinegrid/affine_grid_2d",
        "affinegrid/affine_grid_3d",
        "gridsample/gridsample_nearest_align_corners_1_additional_1",
        "resize/resize_downsample_sizes_linear_pytorch_half_pixel",
        "roialign/roialign_aligned_true",
        "upsample/upsample_nearest",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
