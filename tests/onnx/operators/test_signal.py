"""Transforms of signals, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "blackmanwindow/blackmanwindow_symmetric",
        "hammingwindow/hammingwindow_symmetric",
        "hannwindow/hannwindow_symmetric",
        "melweightmatrix/melweightmatrix",
        "stft/stft_with_window",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
