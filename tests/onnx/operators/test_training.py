"""Steps of optimisers, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "adagrad/adagrad",
        "adagrad/adagrad_multiple",
        "adam/adam",
        "adam/adam_multiple",
        "momentum/momentum",
        "momentum/nesterov_momentum",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
