"""Elements that are read where a condition holds."""

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem.codegen.cpu.target import CpuTarget
from tandem.codegen.llvm.render import render
from tests.codegen.lowering import lowered
from tests.codegen.ops import mul


def padded(x, scale):
    return F.Embed((0, 0), (1, 1), (8, 64))(mul(x, F.Expand((8, 60))(scale)))


def test_an_element_that_all_lanes_share_is_read_once():
    arrays = np.ones((8, 60), np.float32), np.ones((1, 1), np.float32)
    (step,) = lowered(padded, arrays, "make_steps", target=CpuTarget()).steps
    assert render(step.kernel, 64, frozenset()).count(" = load float") < 16


@pytest.mark.parametrize("columns", [0, 1, 15, 16, 17, 60])
@pytest.mark.parametrize("scale", [2.0, float("nan"), float("inf")])
def test_around_what_is_padded_there_are_zeros(columns, scale):
    pad = td.compile(lambda x, s, rows: td.nn.functional.pad(x * s * rows, (2, 5, 1, 0)))
    x, s, rows = td.randn(6, columns), td.tensor(scale), td.arange(6.0)[:, None] + 1
    expected = np.pad(x.numpy() * np.float32(scale) * rows.numpy(), [(1, 0), (2, 5)])
    np.testing.assert_array_equal(expected, pad(x, s, rows).numpy())


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int64", "int8", "bool", "complex64"])
def test_shared_elements_of_other_types(dtype):
    x = td.arange(24).reshape(4, 6).to(getattr(td, dtype))
    s = x[1, 3]
    double = lambda x, s: td.nn.functional.pad(td.where(x == s, x, s), (3, 2))
    assert double(x, s).to(td.complex64).tolist() == td.compile(double)(x, s).to(td.complex64).tolist()
