"""Losses, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "negativeloglikelihoodloss/nllloss_NC",
        "negativeloglikelihoodloss/nllloss_NCd1",
        "negativeloglikelihoodloss/nllloss_NCd1d2",
        "softmax_cross_entropy_loss/sce_mean_weight_ii_3d_log_prob",
        "softmax_cross_entropy_loss/sce_none",
        "softmax_cross_entropy_loss/sce_none_log_prob",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
