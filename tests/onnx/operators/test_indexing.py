"""Operators that gather, scatter and choose, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "compress/compress_default_axis",
        "gather/gather_2d_indices",
        "gatherelements/gather_elements_1",
        "gathernd/gathernd_example_float32",
        "nonmaxsuppression/nonmaxsuppression_identical_boxes",
        "nonzero/nonzero_example",
        "onehot/onehot_negative_indices",
        "scatter/scatter_with_axis",
        "scatterelements/scatter_elements_with_duplicate_indices",
        "scatternd/scatternd_max",
        "tensorscatter/tensorscatter_circular",
        "unique/unique_sorted_with_axis_3d",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
