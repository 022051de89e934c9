"""Products of matrices, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "det/det_2d",
        "det/det_nd",
        "einsum/einsum_inner_prod",
        "einsum/einsum_transpose",
        "gemm/gemm_default_matrix_bias",
        "matmul/matmul_bcast",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
