"""Reductions and softmaxes, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "argmax/argmax_no_keepdims_example_select_last_index",
        "cumprod/cumprod_2d_axis_0",
        "hardmax/hardmax_axis_1",
        "reduce_log_sum/reduce_log_sum_default",
        "reducel1/reduce_l1_default_axes_keepdims_example",
        "reducemax/reduce_max_default_axes_keepdims_random",
        "reducemin/reduce_min_default_axes_keepdims_random",
        "reducesum/reduce_sum_negative_axes_keepdims_example",
        "softmax/softmax_axis_1",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
