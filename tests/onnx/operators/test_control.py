"""Branches and loops, by cases of the standard."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")

import tandem as td  # noqa: E402
from tests.onnx import backend  # noqa: E402


@pytest.mark.parametrize(
    "name", ["if_/if", "if_/if_seq", "loop/loop11", "loop/loop13_seq", "scan/scan9_multi_state", "scan/scan_sum"]
)
def test_a_case_of_the_standard(name):
    backend.run_named(name)


def test_a_loop_whose_condition_is_computed_stands_by_itself():
    """A file's loop ran in Python, which reads the condition: an exported graph cannot."""
    h, kind = onnx.helper, onnx.TensorProto
    scalar = lambda name, t: h.make_tensor_value_info(name, t, None)
    body = h.make_graph(
        [
            h.make_node("Add", ["v", "v"], ["twice"]),
            h.make_node("ReduceSum", ["twice"], ["total"], keepdims=0),
            h.make_node("Less", ["total", "most"], ["going"]),
        ],
        "body", [scalar("i", kind.INT64), scalar("on", kind.BOOL), scalar("v", kind.FLOAT)],
        [scalar("going", kind.BOOL), scalar("twice", kind.FLOAT)],
    )  # fmt: skip
    graph = h.make_graph(
        [h.make_node("Loop", ["trips", "yes", "x"], ["y"], body=body)],
        "g", [h.make_tensor_value_info("x", kind.FLOAT, [2])], [h.make_tensor_value_info("y", kind.FLOAT, [2])],
        [h.make_tensor("most", kind.FLOAT, [], [100.0]), h.make_tensor("trips", kind.INT64, [], [6]),
         h.make_tensor("yes", kind.BOOL, [], [True])],
    )  # fmt: skip
    model = td.onnx.load(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)]))
    frozen = td.export.freeze(lambda x: model(x), td.ones(2), dynamic=False)
    for start, end in ((1.0, 64.0), (9.0, 72.0), (70.0, 140.0), (0.1, 6.4)):
        for run in (model, frozen):
            np.testing.assert_allclose([end, end], run(td.full((2,), start)).numpy(), rtol=1e-6)


def test_branches_may_give_a_scalar_and_a_tensor_of_one_element():
    h, kind = onnx.helper, onnx.TensorProto
    given = lambda name: h.make_tensor_value_info(name, kind.FLOAT, None)
    one = h.make_graph([h.make_node("ReduceSum", ["x"], ["a"], keepdims=0)], "one", [], [given("a")])
    other = h.make_graph([h.make_node("ReduceMax", ["x"], ["b"], keepdims=1)], "other", [], [given("b")])
    graph = h.make_graph(
        [h.make_node("If", ["c"], ["y"], then_branch=one, else_branch=other)], "g",
        [h.make_tensor_value_info("c", kind.BOOL, []), h.make_tensor_value_info("x", kind.FLOAT, [3])], [given("y")],
    )  # fmt: skip
    model = td.onnx.load(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)]))
    x = td.tensor([1.0, 2.0, 3.0])
    frozen = td.export.freeze(lambda c, x: model(c, x), (td.tensor(True), x), dynamic=False)
    assert (6.0, 3.0) == (frozen(td.tensor(True), x).item(), frozen(td.tensor(False), x).item())
