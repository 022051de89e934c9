"""Convolutions of 8-bit numbers are what the integers say, bit for bit, on every kind of processor."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem.ops.define import op
from tandem.ops.integer_products import ConvInteger

CASES = {  # x, weight, images, channels, outputs, sizes, kernel, stride, pads, dilation
    "strides and one channel": ("uint8", "uint8", 1, 1, 24, (16, 20), (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1)),
    "pads that differ": ("uint8", "int8", 2, 24, 24, (9, 7), (3, 3), (1, 1), ((1, 2), (0, 1)), (1, 1)),
    "one element": ("int8", "int8", 1, 24, 33, (5, 5), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    "one axis, dilated": ("int8", "uint8", 3, 5, 70, (11,), (4,), (2,), ((2, 1),), (2,)),
    "three axes": ("uint8", "uint8", 1, 6, 8, (4, 5, 6), (2, 3, 2), (1, 2, 1), ((1, 0), (1, 1), (0, 1)), (1, 1, 1)),
    "many terms": ("uint8", "uint8", 1, 700, 3, (6, 6), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    "one of each": ("uint8", "int8", 1, 1, 1, (1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    "no images": ("uint8", "int8", 0, 3, 4, (5, 5), (3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1)),
}


def operands(name: str):
    x_type, w_type, n, c, o, sizes, kernel, *_ = CASES[name]
    rng = np.random.default_rng(0)

    def whole(dtype, *shape):
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)

    x, w = whole(x_type, n, c, *sizes), whole(w_type, o, c, *kernel)
    return x, w, np.int32(rng.integers(0, 100)), rng.integers(-100, 100, o).astype(np.int32)


def expected(name: str, x, w, x_zero, w_zero) -> np.ndarray:
    kernel, stride, pads, dilation = CASES[name][6:]
    axes = len(kernel)
    padded = np.pad(x.astype(np.int64) - x_zero, [(0, 0), (0, 0), *pads])
    weight = w.astype(np.int64) - w_zero.reshape(-1, *[1] * (axes + 1))
    out = [(padded.shape[2 + i] - (kernel[i] - 1) * dilation[i] - 1) // stride[i] + 1 for i in range(axes)]
    total = np.zeros((x.shape[0], w.shape[0], *out), np.int64)
    for tap in itertools.product(*map(range, kernel)):
        at = [t * d for t, d in zip(tap, dilation, strict=True)]
        window = tuple(slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(at, out, stride, strict=True))
        part = padded[(slice(None), slice(None), *window)]
        total += np.einsum("nc...,oc->no...", part, weight[(slice(None), slice(None), *tap)])
    return total


def made(name: str, x, w, x_zero, w_zero):
    stride, pads, dilation = CASES[name][7:]
    zeros = td.tensor(x_zero, dtype=td.int32), td.tensor(w_zero)
    return F.exact_conv(td.tensor(x), td.tensor(w), *zeros, stride=stride, pads=pads, dilation=dilation)


@pytest.mark.parametrize("name", CASES)
def test_sums_are_exact(name):
    given = operands(name)
    y = made(name, *given)
    assert td.int32 is y.dtype
    np.testing.assert_array_equal(expected(name, *given), y.numpy())


def test_channels_that_lie_last_need_no_copy():
    x, w, x_zero, w_zero = operands("pads that differ")
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(
        made("pads that differ", x, w, x_zero, w_zero).numpy(),
        made("pads that differ", last, w, x_zero, w_zero).numpy(),
    )


def test_what_other_targets_have_instead_gives_the_same():
    @op(hidden=True)
    def composed(x: Tensor, weight: Tensor, sums: Tensor, x_zero: Tensor, w_zero: Tensor):  # noqa: F821
        return ConvInteger((3, 3), (1, 1), (1, 1), (1, 1), (1, 1)).composed(x, weight, sums, x_zero, w_zero)

    @op(hidden=True)
    def packed(rows: Tensor):  # noqa: F821
        from tandem.ops.integer_products import packed_rows

        return packed_rows(rows)

    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (2, 5, 6, 7)).astype(np.uint8), rng.integers(-128, 128, (9, 5, 3, 3)).astype(np.int8)
    rows = td.tensor(np.ascontiguousarray(w.transpose(0, 2, 3, 1)).reshape(9, -1))
    x_zero, w_zero = td.tensor(7, dtype=td.int32), td.tensor(np.arange(9, dtype=np.int32))
    y = composed(td.tensor(x), packed(rows), rows.to(td.int32).sum(1).to(td.int32), x_zero, w_zero)
    exact = F.exact_conv(
        td.tensor(x), td.tensor(w), x_zero, w_zero, stride=(1, 1), pads=((1, 1), (1, 1)), dilation=(1, 1)
    )
    np.testing.assert_array_equal(exact.numpy(), y.numpy())


_PROGRAM = """
from tests.library.test_conv_integer import CASES, expected, made, operands
import numpy as np
for name in CASES:
    given = operands(name)
    np.testing.assert_array_equal(expected(name, *given), made(name, *given).numpy())
"""


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["avx2", "baseline"])
def test_sums_are_exact_on_other_processors(isa):
    subprocess.run([sys.executable, "-c", _PROGRAM], env={**os.environ, "TANDEM_ISA": isa}, check=True)
