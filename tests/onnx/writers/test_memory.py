"""Movement along axes of any size."""

import numpy as np
import pytest

import tandem as td
from tests.onnx.writers.roundtrip import check_save, flat

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")


def rolled(x):
    return td.roll(x, 1, 1), td.roll(x, (-2, 5), (0, 1)), td.roll(x, x.shape[1] // 2, 1)


def test_rolls_of_axes_of_any_size():
    check_save(rolled, td.randn(3, 5), whole_batches=False, dynamic=False)
    loaded = td.onnx.load(td.onnx.save(rolled, td.randn(3, 5), dynamic={"x": (0, 1)}))
    for shape in [(3, 5), (1, 1), (4, 9), (2, 3)]:
        x = td.randn(*shape)
        for expected, made in zip(flat(rolled(x)), flat(loaded(x)), strict=True):
            np.testing.assert_array_equal(made.numpy(), expected.numpy())


def test_windows_along_axes_of_any_size():
    def fn(x):
        return x.unfold(1, 3, 2).amax(-1), x.unfold(0, 2, 2)

    loaded = td.onnx.load(td.onnx.save(fn, td.randn(3, 5), dynamic={"x": (0, 1)}))
    for shape in [(3, 5), (4, 8), (2, 3)]:
        x = td.randn(*shape)
        for expected, made in zip(flat(fn(x)), flat(loaded(x)), strict=True):
            np.testing.assert_array_equal(made.numpy(), expected.numpy())
