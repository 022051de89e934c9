"""What onnxruntime's optimiser and its builders of language models write, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx.operators.onnxruntimes import check_node

rng = np.random.default_rng(0)


def floats(*shape):
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "activation, params", [("Relu", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.7]), ("Tanh", [])]
)
def test_convolutions_with_an_activation(activation, params):
    more = {"activation_params": params} if params else {}
    check_node(
        "FusedConv", [floats(1, 3, 8, 8), floats(4, 3, 3, 3), floats(4)], pads=[1] * 4, activation=activation, **more
    )


def test_a_convolution_that_adds():
    x, z = floats(1, 3, 8, 8), floats(1, 16, 8, 8)
    check_node("FusedConv", [x, floats(16, 3, 3, 3), floats(16), z], pads=[1] * 4, activation="Relu")


def test_products():
    check_node("FusedMatMul", [floats(2, 4, 3), floats(2, 4, 5)], transA=1, alpha=0.3)
    check_node("FusedMatMul", [floats(2, 3, 4), floats(2, 5, 4)], transB=1)
    check_node("FusedMatMul", [floats(3, 2, 4), floats(2, 4, 5)], transBatchA=1)
    check_node("FusedGemm", [floats(3, 4), floats(5, 4), floats(5)], transB=1, activation="Relu", alpha=0.5)


def test_activations():
    check_node("Gelu", [floats(3, 4)])
    check_node("BiasGelu", [floats(3, 4), floats(4)])
    check_node("FastGelu", [floats(3, 4), floats(4)])
    check_node("FastGelu", [floats(3, 4)])
    check_node("QuickGelu", [floats(3, 4)], alpha=1.5)


def test_normalisations():
    x, skip, scale, shift, bias = floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8), floats(8)
    check_node("SkipLayerNormalization", [x, skip, scale, shift, bias], 4, epsilon=1e-5, skip=(1, 2))
    check_node("SkipLayerNormalization", [x, skip, scale])
    check_node("SkipSimplifiedLayerNormalization", [x, skip, scale, bias], 4, epsilon=1e-5, skip=(1, 2))
    check_node("SimplifiedLayerNormalization", [x, scale], domain="", axis=-1, epsilon=1e-5)
    ids, kinds, mask = (rng.integers(0, n, (2, 5)).astype(np.int32) for n in (9, 2, 2))
    tables = [floats(9, 8), floats(6, 8), floats(2, 8), scale, shift]
    mask = np.sort(mask, axis=1)[:, ::-1].copy()
    check_node("EmbedLayerNormalization", [ids, kinds, *tables, mask], 2, epsilon=1e-5)
    check_node("EmbedLayerNormalization", [ids, None, *tables[:2], None, scale, shift], 3, skip=(1,))


@pytest.mark.parametrize("mask", [None, "lengths", "keys"])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_of_one_product(mask, causal):
    given = {None: None, "lengths": np.array([3, 5], np.int32),
             "keys": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)}[mask]  # fmt: skip
    inputs = [floats(2, 5, 8), floats(8, 24), floats(24), given]
    check_node("Attention", inputs, num_heads=2, unidirectional=causal)


def test_attention_goes_on_from_a_cache():
    inputs = [floats(1, 1, 8), floats(8, 24), floats(24), None, floats(2, 1, 2, 4, 4)]
    check_node("Attention", inputs, 2, num_heads=2, unidirectional=1)


def test_attention_of_three_operands():
    q, k, v = floats(2, 3, 8), floats(2, 5, 8), floats(2, 5, 8)
    check_node("MultiHeadAttention", [q, k, v], num_heads=2)
    check_node("MultiHeadAttention", [q, k, v, floats(24), None, floats(1, 2, 3, 5)], num_heads=2, scale=0.4)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    check_node("MultiHeadAttention", [q, k, v, None, mask], num_heads=2)
    past = floats(2, 2, 4, 4), floats(2, 2, 4, 4)
    check_node(
        "MultiHeadAttention",
        [q, floats(2, 3, 8), floats(2, 3, 8), None, None, None, *past],
        3,
        num_heads=2,
        unidirectional=1,
    )


def test_rotary_positions():
    angles = np.outer(np.arange(10), [1.0, 0.1]).astype(np.float32)
    cos, sin = np.cos(angles), np.sin(angles)
    at = np.array([[0, 1, 2], [4, 5, 6]], np.int64)
    check_node("RotaryEmbedding", [floats(2, 3, 8), at, cos, sin])
    check_node("RotaryEmbedding", [floats(2, 3, 8), np.array([3], np.int64), cos, sin], interleaved=1)
    check_node("RotaryEmbedding", [floats(2, 2, 3, 4), at, cos, sin])


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("window", [-1, 3])
def test_grouped_queries(rotary, window):
    angles = np.outer(np.arange(16), 0.7 ** np.arange(8)).astype(np.float32)
    turns = [np.cos(angles), np.sin(angles)] if rotary else []
    settings = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": rotary, "local_window_size": window}
    total = np.array(5, np.int32)
    prompt = [floats(2, 5, 64), floats(2, 5, 32), floats(2, 5, 32)]
    check_node("GroupQueryAttention", [*prompt, None, None, np.array([4, 4], np.int32), total, *turns], 3, **settings)
    packed = np.concatenate(prompt, axis=-1)
    check_node(
        "GroupQueryAttention",
        [packed, None, None, None, None, np.array([4, 4], np.int32), total, *turns],
        3,
        **settings,
    )
    token = [floats(2, 1, 64), floats(2, 1, 32), floats(2, 1, 32), floats(2, 2, 6, 16), floats(2, 2, 6, 16)]
    check_node(
        "GroupQueryAttention", [*token, np.array([6, 6], np.int32), np.array(7, np.int32), *turns], 3, **settings
    )
