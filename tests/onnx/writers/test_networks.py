"""Layers in ONNX files."""

import pytest

import tandem as td
from tests.onnx.writers.roundtrip import check_save

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")


def lstm(x):
    return LSTM(x)[0]


LSTM = td.nn.LSTM(4, 5, batch_first=True)


LAYERS = {
    "group_norm": (td.nn.GroupNorm(2, 4), (2, 4, 5, 5)),
    "conv_transpose": (td.nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), (2, 3, 5, 5)),
    "lstm": (lstm, (2, 6, 4)),
    "transformer": (td.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
    "upsample": (td.nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 4, 4)),
    "adaptive": (td.nn.AdaptiveAvgPool2d(3), (2, 3, 8, 7)),
    "instance_norm": (td.nn.InstanceNorm2d(3), (2, 3, 4, 4)),
    "activations": (td.nn.Sequential(td.nn.ELU(), td.nn.Mish(), td.nn.Hardswish(), td.nn.SiLU(), td.nn.GELU()), (3, 3)),
    "pools": (td.nn.Sequential(td.nn.MaxPool2d(3, 2, 1), td.nn.AvgPool2d(2, ceil_mode=True)), (2, 3, 9, 9)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    layer, shape = LAYERS[name]
    check_save(layer.eval() if isinstance(layer, td.nn.Module) else layer, td.randn(*shape))
