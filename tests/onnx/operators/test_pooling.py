"""Pools, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "averagepool/averagepool_2d_pads_count_include_pad",
        "globalaveragepool/globalaveragepool_precomputed",
        "globalmaxpool/globalmaxpool_precomputed",
        "lppool/lppool_2d_same_lower",
        "maxpool/maxpool_2d_same_upper",
        "maxunpool/maxunpool_export_with_output_shape",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
