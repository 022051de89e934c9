"""Recurrent layers, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "gru/gru_batchwise",
        "gru/gru_defaults",
        "lstm/lstm_batchwise",
        "lstm/lstm_defaults",
        "rnn/simple_rnn_batchwise",
        "rnn/simple_rnn_defaults",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
