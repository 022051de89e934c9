"""Branches and loops, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name", ["if_/if", "if_/if_seq", "loop/loop11", "loop/loop13_seq", "scan/scan9_multi_state", "scan/scan_sum"]
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
