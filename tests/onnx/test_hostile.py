"""Damaged ONNX models are refused with an error of ours, or run; nothing else, and no crash."""

import json
import subprocess
import sys

import numpy as np
import pytest

import tandem as td

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
from onnx import helper  # noqa: E402

from tests.onnx.test_module import model_of  # noqa: E402


def attack(seed: int, count: int) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "tests.onnx.damage", str(seed), str(count)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 10_000, 20_000])
def test_damaged_models_end_in_errors_of_ours(seed):
    result = attack(seed, 1000)
    assert not result["errors"], "\n\n".join(result["errors"][:5])
    assert result["refused"] > 300 and result["ran"] > 100


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (helper.make_node("Relu", ["x", "x"], ["y"]), "it has 2 inputs; the operator has 1"),
        (helper.make_node("Gather", ["x"], ["y"]), "it has 1 inputs; the operator has 2"),
        (helper.make_node("Concat", ["x", "x"], ["y"]), "the attribute 'axis' is not given"),
        (helper.make_node("Softmax", ["x"], ["y"], axis=1.5), "the attribute 'axis' is of kind FLOAT; it must be INT"),
    ],
)
def test_nodes_that_do_not_follow_the_standard_are_refused_when_loaded(node, text):
    with pytest.raises(td.UnsupportedError, match=text):
        td.onnx.load(model_of([node], [("x", 1, [2])], [("y", 1, [2])]))


def test_operands_that_do_not_fit_name_the_node():
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], name="flatten")
    model = td.onnx.load(model_of([node], [("x", 1, [2])], [("y", 1, [2])], [("shape", np.array([[1.5]], np.float32))]))
    with pytest.raises(td.TandemError, match="flatten"):
        model(td.ones(2))
