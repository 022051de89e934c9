"""Operators of shapes, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "cast/cast_UINT4_to_UINT8",
        "center_crop_pad/center_crop_pad_crop_axes_hwc",
        "constantofshape/constantofshape_int_zeros",
        "expand/expand_dim_unchanged",
        "flatten/flatten_default_axis",
        "rangeop/range_int32_type_negative_delta",
        "reversesequence/reversesequence_batch",
        "size/size",
        "spacetodepth/spacetodepth_dcr_mode_example",
        "squeeze/squeeze_negative_axes",
        "transpose/transpose_all_permutations_2",
        "unsqueeze/unsqueeze_two_axes",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
