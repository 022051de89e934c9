"""Operators of the installed PyTorch, called here too: the tool that compares all of them, on some."""

import runpy

import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.slow]


@pytest.fixture(scope="module")
def tool():
    pytest.importorskip("expecttest")  # which PyTorch's own tests need
    return runpy.run_path("tools/compare_torch.py")


def named(tool, name: str) -> list:
    found = [op for op in tool["op_db"] if op.name == name]
    assert found, f"PyTorch has no samples of {name}"
    return found


def test_nearly_all_names_are_here(tool):
    names = {op.name for op in tool["op_db"] if tool["is_public"](op.name)}
    missing = sorted(n for n in names if tool["find"](n) is None)
    assert len(missing) <= 9, missing


SOME = (
    "add", "cumsum", "gather", "index_select", "linalg.solve", "masked.mean", "max", "nn.functional.layer_norm", "sort",
    "std", "where",
)  # fmt: skip


@pytest.mark.parametrize("name", SOME)
def test_calls_are_equal(tool, name):
    for op in named(tool, name):
        outcome = tool["compare_operator"](op, 3)
        assert outcome.total and not outcome.problems


def test_a_difference_is_told(tool):
    import torch

    import tandem as td

    a = torch.ones(2)
    assert tool["difference"](a, td.ones(2), "x") is None
    assert tool["difference"](a, td.ones(3), "x") == "x: shape (3,) for (2,)"
    assert tool["difference"](a, td.ones(2, dtype=td.float64), "x") == "x: float64 for float32"
    assert "values" in tool["difference"](a, td.zeros(2), "x")


@pytest.mark.parametrize("name", ["eq", "diag_embed", "isclose", "maximum", "gather"])
def test_bad_calls_are_refused(tool, name):
    for op in named(tool, name):
        refused, total, missed = tool["compare_errors"](op)
        assert refused >= total - 2, missed
