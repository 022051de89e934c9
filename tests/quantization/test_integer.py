"""Integer arithmetic: products of packed whole numbers are exact, whatever the sizes, and scales are applied to their sums."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.errors import ValueRangeError
from tandem.ops.define import op as operator
from tandem.ops.integer_products import ConvInt8, LinearInt4, LinearInt8
from tandem.quantization import IntegerConv, IntegerLinear, QuantizedConv, compare


def rounded(x: np.ndarray, axis, step=None):
    largest = np.abs(x).max(axis, keepdims=True)
    step = np.float32(step) if step else np.where(largest == 0, np.float32(1), largest / np.float32(127))
    return np.clip(np.rint(x / step), -127, 127), step


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 17, 100])
@pytest.mark.parametrize("n, k", [(1, 3), (32, 64), (50, 37), (97, 260)])
def test_a_product_of_8_bits(rows, n, k):
    td.manual_seed(rows)
    layer = nn.Linear(k, n)
    made = IntegerLinear(layer, 8, None)
    x = td.randn(rows, k)
    q, step = rounded(x.numpy(), 1)
    expected = (q @ made.dequantized().numpy().T.astype(np.float64)) * step + layer.bias.detach().numpy()
    for fn in (made, td.compile(made)):
        np.testing.assert_allclose(fn(x).numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 4, 9])
@pytest.mark.parametrize("n, k, group", [(1, 32, 32), (40, 96, 32), (17, 64, 16), (16, 24, 8)])
def test_a_product_of_4_bits(rows, n, k, group):
    td.manual_seed(rows)
    layer = nn.Linear(k, n)
    made = IntegerLinear(layer, 4, group)
    x = td.randn(rows, k)
    q, step = rounded(x.numpy().reshape(rows, k // group, group), 2)
    weights = made.dequantized().numpy().astype(np.float64)
    expected = (q * step).reshape(rows, k) @ weights.T + layer.bias.detach().numpy()
    for fn in (made, td.compile(made)):
        np.testing.assert_allclose(fn(x).numpy(), expected, rtol=1e-4, atol=1e-4)
    assert made.weight.numel() >= n * k // 2


CONVOLUTIONS = [
    (nn.Conv2d(3, 8, 3), (2, 3, 9, 7)), (nn.Conv2d(16, 33, 1), (2, 16, 5, 5)), (nn.Conv1d(4, 6, 3, padding=2), (3, 4, 11)),
    (nn.Conv2d(5, 6, 3, stride=2, padding=1, bias=False), (1, 5, 8, 8)), (nn.Conv3d(2, 4, 2, dilation=2), (1, 2, 5, 5, 6)),
    (nn.Conv2d(4, 4, (1, 4), padding="same"), (1, 4, 6, 6)),
]  # fmt: skip


@pytest.mark.parametrize("layer, shape", CONVOLUTIONS, ids=range(len(CONVOLUTIONS)))
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_convolution(layer, shape, channels_last):
    x = td.randn(shape)
    if channels_last:
        if x.ndim != 4:
            pytest.skip("this layout is for images")
        x = x.contiguous(memory_format=td.channels_last)
    made = IntegerConv(layer, 8, None)
    np.testing.assert_allclose(made.dequantized().numpy(), layer.weight.detach().numpy(), atol=float(made.scale.max()))
    q, step = rounded(x.numpy(), None)
    expected = layer._conv_forward(td.tensor((q * step).astype(np.float32)), made.dequantized(), layer.bias)
    for fn in (made, td.compile(made)):
        np.testing.assert_allclose(fn(x).numpy(), expected.detach().numpy(), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(made(x[0]).numpy(), made(x[:1])[0].numpy(), rtol=1e-5, atol=1e-5)


def test_the_routines_equal_their_formulas():
    """What other devices compute: the same rounding, written with operators."""
    td.manual_seed(0)
    conv = nn.Conv2d(3, 5, 3)
    cases = [
        (LinearInt8(0.0), IntegerLinear(nn.Linear(40, 10), 8, None), (6, 40)),
        (LinearInt8(0.02), IntegerLinear(nn.Linear(40, 10), 8, None, 0.02), (6, 40)),
        (LinearInt4(), IntegerLinear(nn.Linear(64, 10), 4, 32), (6, 64)),
        (ConvInt8((3, 3), (1, 1), (0, 0), (0, 0), (1, 1), 0.0), IntegerConv(conv, 8, None), (2, 3, 6, 6)),
    ]
    for primitive, layer, shape in cases:
        x = td.randn(shape)
        operands = [t for t in (layer.weight, layer.scale, getattr(layer, "sums", None), layer.bias) if t is not None]
        np.testing.assert_allclose(_composed(primitive)(x, operands).numpy(), layer(x).numpy(), rtol=1e-3, atol=1e-3)


def _composed(primitive):
    @operator(hidden=True)
    def formula(x: Tensor, operands: Tensors):  # noqa: F821  operators go by names
        return primitive.composed(x, *operands)

    return formula


def test_extremes():
    layer = IntegerLinear(nn.Linear(300, 4), 8, None)
    zeros = td.zeros(2, 300)
    np.testing.assert_allclose(layer(zeros).numpy(), np.tile(layer.bias.numpy(), (2, 1)))
    x = td.randn(3, 300)
    x[1, 5] = float("nan")
    x[2, 299] = float("inf")
    found = layer(x).numpy()
    assert np.isfinite(found[0]).all() and np.isnan(found[1:]).all(), "what is not finite is not hidden"
    big = IntegerLinear(nn.Linear(5000, 1, bias=False), 8, None)
    big.weight.fill_(127)
    big.sums.fill_(127 * 5000)
    np.testing.assert_allclose(big(td.ones(1, 5000)).numpy(), 5000 * 127 * big.scale.numpy()[None], rtol=1e-6)
    assert layer(td.zeros(0, 300)).shape == (0, 4)


def test_steps_from_calibration():
    td.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 64)).eval()
    batches = [td.randn(4, 3, 6, 6) for _ in range(4)]
    made = td.quantize(model, 8, activations=batches)
    assert isinstance(made[0], IntegerConv) and isinstance(made[3], IntegerLinear)
    most = max(float(b.abs().max()) for b in batches)
    assert made[0].x_scale == pytest.approx(most / 127) and made[3].x_scale > 0
    report = compare(model, made, batches[0])
    assert report.error < 0.03 and report.agreement > 0.7, str(report)
    assert report.bytes_before > 3 * report.bytes_after
    dynamic = td.quantize(model, 8, activations="dynamic")
    assert dynamic[0].x_scale == 0 and compare(model, dynamic, batches[0]).error < 0.03


@pytest.mark.parametrize("bits", [8, 4])
def test_a_language_model_with_its_tied_head(bits):
    td.manual_seed(0)
    model = td.models.GPT2(vocabulary=64, context=32, layers=1, heads=2, width=32).eval()
    made = td.quantize(model, bits, activations="dynamic")
    assert isinstance(made.lm_head, IntegerLinear) and model.lm_head is None
    tokens = td.randint(0, 64, (1, 12))
    with td.no_grad():
        exact, found = model(tokens).numpy(), made(tokens).numpy()
    assert np.linalg.norm(found - exact) < (0.03 if bits == 8 else 0.25) * np.linalg.norm(exact)
    assert made.generate(tokens, 4, temperature=0).shape == (1, 16)
    kept = td.quantize(model, bits, activations="dynamic", skip=["lm_head"])
    assert type(kept.lm_head) is nn.Linear and kept.lm_head.weight is kept.wte.weight


def test_what_cannot_be_quantised_so_says_why():
    model = nn.Sequential(nn.Linear(8, 8))
    with pytest.raises(ValueRangeError, match="dynamic"):
        td.quantize(model, activations="often")
    with pytest.raises(ValueRangeError, match="8 bits"):
        td.quantize(model, 4, activations=[td.randn(1, 8)])
    with pytest.raises(ValueRangeError, match="no activations to"):
        td.quantize(model, activations=[])
    with pytest.raises(ValueRangeError, match="weights alone"):
        td.quantize(model, activations="dynamic", training=True)
    grouped = td.quantize(nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)), activations="dynamic")
    assert isinstance(grouped[0], QuantizedConv), "a grouped convolution keeps float activations"


def test_gradients_pass_and_files_hold_it(tmp_path):
    made = IntegerLinear(nn.Linear(8, 4), 8, None)
    x = td.randn(2, 8, requires_grad=True)
    made(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.tile(made.dequantized().numpy().sum(0), (2, 1)), rtol=1e-4, atol=1e-5)
    td.export.save(made, td.randn(1, 8), tmp_path / "small.model")
    loaded = td.export.load(tmp_path / "small.model")
    x = td.randn(3, 8)
    np.testing.assert_allclose(loaded(x).numpy(), made(x).numpy(), rtol=1e-6)


_PROGRAM = """
import numpy as np, tandem as td
td.manual_seed(0)
x = td.randn(5, 100)
for bits, group in ((8, None), (4, 20 * 2)):
    if bits == 4:
        x = td.randn(5, 80)
    layer = td.quantization.IntegerLinear(td.nn.Linear(x.shape[1], 45), bits, group)
    print(layer(x).numpy().astype(np.float64).tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["avx2", "baseline"])
def test_sums_are_the_same_on_every_processor(isa):
    found = [
        subprocess.run(
            [sys.executable, "-c", _PROGRAM], env={**os.environ, **more}, capture_output=True, text=True, check=True
        ).stdout
        for more in ({}, {"TANDEM_ISA": isa})
    ]  # fmt: skip
    for a, b in zip(*(map(eval, text.splitlines()) for text in found), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
