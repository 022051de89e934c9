"""The backend tests that come with the package onnx, run on our models."""

from __future__ import annotations

import contextlib
import glob
import importlib
import io
import os
import warnings

import numpy as np

import tandem as td

# Cases that no other implementation can meet: random numbers, and bits of 16-bit sums in another order.
RANDOM = ("test_bernoulli", "test_training_dropout")


@contextlib.contextmanager
def _quietly():
    """The cases compute with NaN and overflow, and print."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def cases(kinds=("node", "simple", "pytorch-converted", "pytorch-operator", "real")) -> list:
    from onnx.backend.test.loader import load_model_tests

    with _quietly():
        return [case for kind in kinds for case in sorted(load_model_tests(kind=kind), key=lambda case: case.name)]


def run(case):
    """Raises AssertionError where a result is not what the case expects."""
    model, sets = _model_and_data(case)
    loaded = td.onnx.load(model)
    for inputs, expected in sets:
        with td.no_grad():
            given = loaded(*[_array(v) for v in inputs])
        results = list(given) if isinstance(given, tuple) else [given]
        for result, wanted in zip(results, expected, strict=False):
            compare(_host(result), _array(wanted), case.rtol, case.atol)


def run_named(name: str):
    """Runs one case, "module/case" of onnx.backend.test.case.node, without making those of all other operators."""
    from onnx.backend.test.case import node

    module, case = name.split("/")
    with _quietly():
        importlib.import_module(f"{node.__name__}.{module}")  # makes its cases
    run(next(c for c in node._NodeTestCases if c.name == f"test_{case}"))


def _model_and_data(case):
    import onnx

    if case.model is not None:
        return case.model, case.data_sets
    if case.model_dir is not None:
        model = onnx.load(os.path.join(case.model_dir, "model.onnx"))
        return model, [
            (_read(folder, "input", model.graph.input), _read(folder, "output", model.graph.output))
            for folder in sorted(glob.glob(os.path.join(case.model_dir, "test_data_set_*")))
        ]
    path = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", case.url.split("/data/")[1])
    model = onnx.load(path)
    weights = {t.name for t in model.graph.initializer}
    (given,) = [i for i in model.graph.input if i.name not in weights]
    shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
    x = (np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)).astype(np.float32)
    return model, [([x], [_parse(path.replace(".onnx", "_output_0.pb"), model.graph.output[0])])]


def _read(folder: str, kind: str, infos) -> list:
    count = len(glob.glob(os.path.join(folder, f"{kind}_*.pb")))
    return [_parse(os.path.join(folder, f"{kind}_{i}.pb"), infos[i]) for i in range(count)]


def _parse(path: str, info):
    import onnx
    from onnx import numpy_helper

    with open(path, "rb") as file:
        data = file.read()
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _array(value):
    import onnx

    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _host(value):
    if isinstance(value, list):
        return [_host(v) for v in value]
    return value.detach().numpy() if isinstance(value, td.Tensor) else value


def compare(actual, expected, rtol: float, atol: float):
    if isinstance(expected, (list, tuple)):
        assert len(expected) == len(actual)
        for a, e in zip(actual, expected, strict=True):
            compare(a, e, rtol, atol)
        return
    if expected is None:
        assert actual is None
        return
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert expected.shape == actual.shape
    if expected.dtype.kind in "OUS":
        texts = [s.decode() if isinstance(s, bytes) else s for s in expected.reshape(-1)]
        assert texts == list(actual.reshape(-1))
        return
    assert expected.dtype == actual.dtype
    if expected.dtype.kind not in "fiubc":  # ml_dtypes
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)
