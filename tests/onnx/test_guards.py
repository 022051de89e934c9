import numpy as np
import pytest

import tandem as td

onnx = pytest.importorskip("onnx")
reference = pytest.importorskip("onnx.reference")


def test_sizes_that_a_graph_is_not_right_for_are_refused_by_the_file():
    model = td.onnx.save(lambda x: x.squeeze(0) > 0.5, td.randn(6, 4), dynamic={"x": (0,)})
    (guard,) = (n for n in model.graph.node if n.op_type == "Gather" and "must have" in n.name)
    assert guard.name.startswith("axis 0 of 'x' must have 2 elements or more: the function gives other shapes")
    run = reference.ReferenceEvaluator(model).run
    assert (2, 4) == run(None, {"x": np.ones((2, 4), np.float32)})[0].shape
    with pytest.raises(IndexError):
        run(None, {"x": np.ones((1, 4), np.float32)})


def test_files_without_such_sizes_have_no_guard():
    model = td.onnx.save(lambda x: x * 2, td.randn(6, 4))
    assert ["Add"] == [n.op_type for n in model.graph.node] or ["Mul"] == [n.op_type for n in model.graph.node]


def test_sizes_that_become_nothing():
    """A 0 in the shape of a Reshape stands for the size that there is, unless the file says otherwise."""
    model = td.onnx.save(lambda x: x[1:].reshape(1, -1, x.shape[0] - 1).permute(2, 0, 1).reshape(x.shape[0] - 1, -1, 4),
                         td.randn(6, 4), dynamic={"x": (0,)})  # fmt: skip
    run = reference.ReferenceEvaluator(model).run
    assert [(n - 1, 1, 4) for n in (2, 3, 6)] == [
        run(None, {"x": np.ones((n, 4), np.float32)})[0].shape for n in (2, 3, 6)
    ]
    shapes = [n for n in model.graph.node if n.op_type == "Reshape"]
    assert all(onnx.helper.get_node_attr_value(n, "allowzero") in (0, 1) for n in shapes)
    outer = td.onnx.save(lambda x: td.outer(x[1:], x[1:]).reshape(1, x.shape[0] - 1, x.shape[0] - 1), td.randn(6),
                         dynamic={"x": (0,)})  # fmt: skip
    assert (1, 0, 0) == reference.ReferenceEvaluator(outer).run(None, {"x": np.ones(1, np.float32)})[0].shape
