"""extend_calls: what a library does along with a call is no kernel of its own."""

import ml_dtypes
import numpy as np

import tandem.ops as F
from tandem import dtypes
from tandem.codegen.targets import target_of
from tandem.ops.conv import ConvForward
from tests.codegen.lowering import lowered, names

HALF = ml_dtypes.bfloat16


def test_a_product_whose_float32_form_is_wanted_is_computed_in_float32():
    a, b = np.ones((256, 64), HALF), np.ones((64, 256), HALF)
    widened = lambda x, y: F.Cast(dtypes.float32)(F.Matmul()(x, y))
    device = target_of(1)
    assert "cast" not in names(lowered(widened, [a, b], "save_traffic", target=device))
    assert "cast" in names(lowered(widened, [a, b], "save_traffic", target=device, skip=["extend_calls"]))


def test_the_cpu_has_no_such_calls():
    x, w, bias = np.ones((1, 8, 6, 6), np.float32), np.ones((8, 8, 3, 3), np.float32), np.ones(8, np.float32)
    conv = lambda x, w, b: F.Relu()(ConvForward((1, 1), (1, 1), (1, 1), (1, 1), 1)(x, w, b))
    assert names(lowered(conv, [x, w, bias], "extend_calls")) == ["conv_forward", "relu"]
