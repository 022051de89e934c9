"""Operators of text, by cases of the standard."""

import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")

from tests.onnx import backend


@pytest.mark.parametrize(
    "name",
    [
        "regex_full_match/regex_full_match_basic",
        "regex_full_match/regex_full_match_email_domain",
        "string_concat/string_concat_zero_dimensional",
        "string_split/string_split_empty_string_delimiter",
        "stringnormalizer/strnormalizer_export_monday_casesensintive_upper",
        "tfidfvectorizer/tfidfvectorizer_tf_onlybigrams_skip5",
    ],
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)
