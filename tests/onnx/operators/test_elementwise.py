"""Elementwise operators, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "abs/abs",
        "atanh/atanh",
        "clip/clip_default_min",
        "erf/erf",
        "identity/identity_sequence",
        "mean/mean_one_input",
        "prelu/prelu_broadcast",
        "sign/sign",
        "swish/swish",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
