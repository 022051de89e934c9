"""What onnxruntime's quantisation tools write, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx.operators.onnxruntimes import check_node

rng = np.random.default_rng(0)


def floats(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def whole(*shape, dtype=np.uint8):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def scale(value: float):
    return np.array(value, np.float32)


def zero(value: int, dtype=np.uint8):
    return np.array(value, dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_arithmetic_between_layers(dtype):
    a, b = (
        [whole(2, 3, dtype=dtype), scale(0.05), zero(3, dtype)],
        [whole(2, 3, dtype=dtype), scale(0.02), zero(7, dtype)],
    )
    y = [scale(0.1), zero(5, dtype)]
    check_node("QLinearAdd", [*a, *b, *y], levels=1)
    check_node("QLinearMul", [*a, *b, *y], levels=1)
    check_node("QLinearSigmoid", [*a, scale(1 / 256), zero(0, dtype)], constants=(1, 2, 3, 4), levels=1)
    check_node("QLinearLeakyRelu", [*a, *y], constants=(1, 2, 3, 4), levels=1, alpha=0.2)
    check_node(
        "QLinearSoftmax", [*a, scale(1 / 256), zero(0, dtype)], constants=(1, 2, 3, 4), levels=1, axis=-1, opset=13
    )
    check_node("QLinearConcat", [*y, *a, *b], constants=(0, 1, 3, 4, 6, 7), levels=1, axis=1)
    condition = np.array([[True, False, True]])
    check_node("QLinearWhere", [condition, *a, *b, *y], constants=(2, 3, 5, 6, 7, 8), levels=1)


def test_pools_between_layers():
    x, y = [whole(1, 4, 6, 6), scale(0.05), zero(3)], [scale(0.04), zero(9)]
    check_node("QLinearAveragePool", [*x, *y], levels=1, kernel_shape=[3, 3], strides=[2, 2])
    check_node("QLinearGlobalAveragePool", [*x, *y], levels=1)
    check_node("NhwcMaxPool", [whole(1, 6, 6, 4)], kernel_shape=[2, 2], strides=[2, 2])


def test_convolutions_with_channels_last():
    x, w = (
        [whole(1, 6, 6, 4), scale(0.05), zero(3)],
        [whole(8, 4, 3, 3, dtype=np.int8), floats(8) ** 2, np.zeros(8, np.int8)],
    )
    check_node(
        "QLinearConv", [*x, *w, scale(2.0), zero(9)], constants=(3, 4, 5), levels=1, channels_last=1, pads=[1] * 4
    )


def test_products():
    a, b = whole(3, 8), whole(8, 5, dtype=np.int8)
    each = np.abs(floats(5)) + 0.1
    steps, bias = [each, np.zeros(5, np.int8)], whole(5, dtype=np.int8).astype(np.int32)
    check_node("QGemm", [a, scale(0.1), zero(4), b, *steps, bias, scale(9.0), zero(1)], constants=(3, 4, 5), levels=1)
    check_node("QGemm", [a, scale(0.1), zero(4), b, scale(0.2), zero(0, np.int8)], constants=(3, 4, 5))
    check_node("MatMulIntegerToFloat", [a, b, scale(0.1), each, zero(4), zero(0, np.int8), floats(5)], constants=(1, 3))
    check_node("DynamicQuantizeMatMul", [floats(3, 8), b, each, np.zeros(5, np.int8), floats(5)], constants=(1, 2, 3))


@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
@pytest.mark.parametrize("bits", [4, 8])
def test_weights_of_few_bits_in_blocks(bits, zeros):
    n, k, size = 6, 40, 16
    blocks = -(-k // size)
    data, scales = whole(n, blocks, size * bits // 8), np.abs(floats(n, blocks)) + 0.1
    given = {"none": [], "packed": [whole(n, -(-blocks * bits // 8))], "floats": [floats(n, blocks)]}[zeros]
    if bits == 8 and zeros == "floats":
        pytest.skip("onnxruntime wants whole numbers there")
    check_node("MatMulNBits", [floats(3, k), data, scales, *given], constants=(1, 2, *range(3, 3 + len(given))), tolerance=2e-3,
               N=n, K=k, bits=bits, block_size=size, accuracy_level=1)  # fmt: skip


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_recurrent_layers_with_weights_of_8_bits(direction):
    d, hidden, size = (2 if direction == "bidirectional" else 1), 6, 4
    w, r = whole(d, size, 4 * hidden, dtype=np.int8), whole(d, hidden, 4 * hidden, dtype=np.int8)
    inputs = [floats(5, 2, size), w, r, floats(d, 8 * hidden) * 0.1, None, None, None, None,
              np.full(d, 0.004, np.float32), np.zeros(d, np.int8), np.full(d, 0.004, np.float32), np.zeros(d, np.int8)]  # fmt: skip
    # onnxruntime rounds the state to 8 bits at every step, here it stays a float
    check_node(
        "DynamicQuantizeLSTM",
        inputs,
        3,
        constants=(1, 2, 3, 8, 9, 10, 11),
        tolerance=2e-2,
        hidden_size=hidden,
        direction=direction,
    )


def test_attention_on_8_bits():
    x, w = whole(2, 5, 8), whole(8, 24, dtype=np.int8)
    inputs = [x, w, floats(24), scale(0.02), scale(0.01), np.array([3, 5], np.int32), zero(100), zero(0, np.int8)]
    check_node("QAttention", inputs, constants=(1,), num_heads=2, tolerance=1e-4)
