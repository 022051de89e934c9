"""Single nodes of onnxruntime's own operators, run by it and by us."""

from __future__ import annotations

import numpy as np
import pytest

import tandem as td


def check_node(op: str, inputs: list, outputs: int = 1, tolerance: float = 1e-5, levels: int = 0, domain="com.microsoft",
               constants: tuple = (), skip: tuple = (), **attributes):  # fmt: skip
    """inputs: arrays, or None for what is left out; constants: those that are weights. levels: how far whole numbers may be off;
    skip: outputs that onnxruntime's processor code does not give."""
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from onnx import helper, numpy_helper

    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    made = [f"y{i}" if i not in skip else "" for i in range(outputs)]
    given = {n: x for n, x in zip(names, inputs, strict=True) if n}
    node = helper.make_node(op, names, made, name="node", domain=domain, **attributes)
    described = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for i, (n, x) in enumerate(zip(names, inputs, strict=True)) if n and i not in constants
    ]  # fmt: skip
    weights = [numpy_helper.from_array(inputs[i], names[i]) for i in constants]
    results = [onnx.ValueInfoProto(name=n) for n in made if n]
    graph = helper.make_graph([node], "one", described, results, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    file = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    asked = {n: x for n, x in given.items() if int(n[1:]) not in constants}
    expected = session.run(None, asked)
    module = td.onnx.load(onnx.load_model_from_string(file))
    tensors = {n: td.tensor(x) for n, x in asked.items()}
    for run in (module, td.compile(module)):
        with td.no_grad():
            found = run(**tensors)
        found = found if isinstance(found, (tuple, list)) else (found,)
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            ours = ours.numpy()
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, (op, ours.shape, theirs.shape)
            if np.issubdtype(theirs.dtype, np.integer):
                assert np.abs(ours.astype(int) - theirs.astype(int)).max(initial=0) <= levels, op
            else:
                assert np.allclose(ours, theirs, rtol=tolerance, atol=tolerance), (op, np.abs(ours - theirs).max())
