"""Sequences and optional values, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "optionalgetelement/optional_get_element_optional_sequence",
        "optionalgetelement/optional_get_element_optional_tensor",
        "optionalhaselement/optional_has_element_empty_no_input_tensor_input",
        "sequence_map/sequence_map_add_2_sequences",
        "sequenceinsert/sequence_insert_at_front",
        "splittosequence/split_to_sequence_2",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
