"""Functions that are saved, loaded and run."""

import importlib.util

import numpy as np
import pytest

import tandem as td

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")


def flat(results) -> list:
    return [results] if isinstance(results, td.Tensor) else [leaf for part in results for leaf in flat(part)]


def check_save(fn, *args, tolerance=2e-5, whole_batches=True, **options):
    """What is written gives the function's results, for the given sizes and for batches three times as large."""
    proto = td.onnx.save(fn, args, **options)
    runs = [lambda *xs: flat(td.onnx.load(proto)(*xs))]
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        session = onnxruntime.InferenceSession(proto.SerializeToString())
        names = [i.name for i in session.get_inputs()]
        runs.append(lambda *xs: session.run(None, {n: x.numpy() for n, x in zip(names, xs, strict=True)}))
    for given in [args, [td.concat([a, a, a], axis=0) for a in args]] if whole_batches else [args]:
        with td.no_grad():
            expected = flat(fn(*given))
            for run in runs:
                for e, got in zip(expected, run(*given), strict=True):
                    np.testing.assert_allclose(np.asarray(got), e.numpy(), rtol=tolerance, atol=tolerance)
    return proto
