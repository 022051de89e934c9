"""Running results along axes of free sizes, order, positions."""

import importlib.util

import numpy as np
import pytest

import tandem as td
from tests.onnx.writers.roundtrip import check_save, flat

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")


def running(x):
    tops, at = td.cummax(x, 1)
    lows, low_at = td.cummin(x, 0)
    return x.cumprod(1), td.logcumsumexp(x, 1), tops, at, lows, low_at, x.cumsum(0), (x * 3).int().cumprod(1)


def test_running_results_of_fixed_sizes():
    check_save(running, td.randn(3, 5), dynamic=False, whole_batches=False)


def test_running_results_along_axes_of_any_size():
    loaded = td.onnx.load(td.onnx.save(running, td.randn(3, 5), dynamic={"x": (0, 1)}))
    for shape in [(3, 5), (1, 1), (4, 17), (2, 2)]:
        x = td.randn(*shape)
        for expected, made in zip(flat(running(x)), flat(loaded(x)), strict=True):
            np.testing.assert_allclose(made.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_nan_and_infinities_in_running_results():
    x = td.tensor([[1.0, float("nan"), 3.0], [-float("inf"), -float("inf"), 2.0], [float("inf"), 1.0, float("inf")]])
    check_save(
        lambda x: (td.cummax(x, 1), td.cummin(x, 1), td.logcumsumexp(x, 1)), x, dynamic=False, whole_batches=False
    )


def test_medians_along_axes_of_any_size():
    loaded = td.onnx.load(td.onnx.save(lambda x: x.median(-1), td.randn(3, 5), dynamic={"x": (0, 1)}))
    for shape in [(3, 5), (4, 8)]:
        x = td.randn(*shape)
        assert x.median(-1)[0].tolist() == loaded(x)[0].tolist()


def test_any_and_all_of_no_elements(tmp_path):
    def seen(x):
        same = x[:, None] == x[: x.shape[0] % 3]
        return same.any(1), same.all(1)

    path = tmp_path / "m.onnx"
    td.onnx.save(seen, (td.randn(4),), path, dynamic={"x": (0,)})
    ways = [td.onnx.load(path)]
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        ways.append(lambda x: session.run(None, {session.get_inputs()[0].name: x.numpy()}))
    for n in (3, 4, 5, 6):
        x = td.randn(n)
        for run in ways:
            for expected, made in zip(seen(x), run(x), strict=True):
                assert expected.tolist() == made.tolist()
