"""Names that are misspelt."""

import subprocess
import sys

import pytest

import tandem as td
import tandem.torch as torch


@pytest.mark.parametrize(
    ("module", "name", "meant"),
    [(td, "sofmax", "softmax"), (torch, "arrange", "arange"), (td, "tensr", "tensor"), (torch, "sofmax", "softmax")],
)
def test_the_name_that_was_meant_is_suggested(module, name, meant):
    with pytest.raises(AttributeError, match=f"Did you mean: '{meant}'"):
        getattr(module, name)


def test_nothing_is_suggested_for_what_is_like_nothing():
    with pytest.raises(AttributeError) as error:
        _ = td.qqqqqqqq
    assert "Did you mean" not in str(error.value)


@pytest.mark.parametrize("code", ["td.sofmax", "td.nn.Lineer", "td.ones(2).sofmax", "td.optim.Adaam"])
def test_a_program_that_ends_so_says_it_once(code):
    done = subprocess.run([sys.executable, "-c", f"import tandem as td\n{code}"], capture_output=True, text=True)
    assert done.stderr.count("Did you mean") == 1
