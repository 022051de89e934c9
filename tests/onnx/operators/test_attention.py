"""Attention, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "attention/attention_3d_diff_heads_sizes_scaled",
        "attention/attention_4d",
        "attention/attention_4d_fp16",
        "rotaryembedding/rotary_embedding",
        "rotaryembedding/rotary_embedding_3d_input",
        "rotaryembedding/rotary_embedding_with_interleaved_rotary_dim",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
