"""td.export.freeze: the same values as the module, with weights packed once."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tandem as td
import tandem.nn.functional as NF
from tandem.graph.ir import Type
from tandem.ops.conv_fused import ACTIVATIONS, ConvFused
from tandem.ops.define import op as operator


def count(model, name: str) -> int:
    return sum(node.op.name == name for node in model.graph.nodes)


class Block(td.nn.Module):
    """A residual block as networks have them, with an activation at the end."""

    def __init__(self, channels: int, activation):
        super().__init__()
        self.narrow = td.nn.Conv2d(channels, channels, 1, bias=False)
        self.norm = td.nn.BatchNorm2d(channels)
        self.depthwise = td.nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.wide = td.nn.Conv2d(channels, channels, 3, padding=1)
        self.activation = activation

    def forward(self, x):
        y = self.activation(self.norm(self.narrow(x)))
        y = self.activation(self.depthwise(y))
        return self.activation(self.wide(y) + x)


@pytest.mark.parametrize(
    "activation",
    [
        NF.relu, NF.relu6, NF.silu, NF.sigmoid, NF.hardswish, NF.gelu, lambda x: NF.leaky_relu(x, 0.1),
        lambda x: td.clip(x, -0.5, 0.5), td.tanh,
    ],
)  # fmt: skip
def test_a_residual_block(activation):
    td.manual_seed(0)
    block = Block(16, activation)
    block.norm.running_mean.copy_(td.randn(16))
    block.norm.running_var.copy_(td.rand(16) + 0.5)
    block.eval()
    frozen = td.export.freeze(block, td.randn(1, 16, 9, 9))
    assert count(frozen, "conv_fused") == 3 and count(frozen, "conv_forward") == 0
    for batch in (1, 3):
        x = td.randn(batch, 16, 9, 9)
        for _ in range(2):  # the second call uses packed weights
            np.testing.assert_allclose(frozen(x).numpy(), block(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_what_follows_is_one_operator():
    td.manual_seed(0)
    block = Block(8, NF.relu).eval()
    names = [n.op.name for n in td.export.freeze(block, td.randn(1, 8, 5, 5)).graph.nodes if n.op.name != "input"]
    assert names == ["conv_fused"] * 3


def test_what_others_read_stays():
    conv = td.nn.Conv2d(4, 4, 3)

    def fn(x):
        y = conv(x)
        return td.relu(y) + y.sum()

    frozen = td.export.freeze(fn, td.randn(2, 4, 6, 6))
    x = td.randn(2, 4, 6, 6)
    np.testing.assert_allclose(frozen(x).numpy(), fn(x).detach().numpy(), rtol=1e-4, atol=1e-4)


def test_two_convolutions_that_are_added():
    a, b = td.nn.Conv2d(4, 4, 1), td.nn.Conv2d(4, 4, 3, padding=1)
    frozen = td.export.freeze(lambda x: td.relu(a(x) + b(x)), td.randn(1, 4, 6, 6))
    assert count(frozen, "conv_fused") == 2 and count(frozen, "add") == 0
    x = td.randn(2, 4, 6, 6)
    np.testing.assert_allclose(frozen(x).numpy(), td.relu(a(x) + b(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axes", [1, 3])
def test_other_numbers_of_axes(axes):
    layer = (td.nn.Conv1d if axes == 1 else td.nn.Conv3d)(3, 5, 3, padding=1)
    frozen = td.export.freeze(lambda x: td.relu(layer(x)), td.randn(1, 3, *(6,) * axes))
    x = td.randn(2, 3, *(6,) * axes)
    np.testing.assert_allclose(frozen(x).numpy(), td.relu(layer(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_images_of_one_column():
    layer = td.nn.Conv2d(8, 16, (5, 1), stride=(2, 1), padding=(1, 0))
    frozen = td.export.freeze(lambda x: td.relu(layer(x)), td.randn(1, 8, 32, 1))
    x = td.randn(3, 8, 32, 1)
    np.testing.assert_allclose(frozen(x).numpy(), td.relu(layer(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel_size": 5, "stride": 1, "padding": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (4, 3), "stride": (2, 3), "padding": 1, "ceil_mode": True},
    ],
)
def test_max_pooling_without_positions(settings):
    pool = td.nn.MaxPool2d(**settings)
    frozen = td.export.freeze(pool, td.randn(1, 3, 13, 11))
    large = settings["kernel_size"] != 3
    assert count(frozen, "pool_max") == 0 and count(frozen, "pool_max_values") == 1 + large
    x = td.randn(2, 3, 13, 11)
    x[0, 0, 3, 4] = float("nan")
    np.testing.assert_array_equal(frozen(x).numpy(), pool(x).numpy())


def test_positions_that_are_asked_for_are_written():
    pool = td.nn.MaxPool2d(3, return_indices=True)
    frozen = td.export.freeze(pool, td.randn(1, 3, 13, 11))
    assert count(frozen, "pool_max") == 1
    x = td.randn(2, 3, 13, 11)
    for have, want in zip(frozen(x), pool(x), strict=True):
        np.testing.assert_array_equal(have.numpy(), want.numpy())


def test_weights_that_are_written_are_packed_again():
    layer = td.nn.Conv2d(16, 16, 3)
    frozen = td.export.freeze(layer, td.randn(1, 16, 8, 8))
    x = td.randn(1, 16, 8, 8)
    before = frozen(x).numpy()
    with td.no_grad():
        for p in frozen.parameters():
            p.mul_(2.0)
    np.testing.assert_allclose(frozen(x).numpy(), 2 * before, rtol=1e-5, atol=1e-6)


def test_linear_layers_of_several_sizes_of_batch():
    td.manual_seed(0)
    model = td.nn.Sequential(td.nn.Linear(96, 192), td.nn.ReLU(), td.nn.Linear(192, 64)).eval()
    frozen = td.export.freeze(model, td.randn(8, 96))
    for batch in (1, 8, 40, 8, 300):
        x = td.randn(batch, 96)
        np.testing.assert_allclose(frozen(x).numpy(), model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_threads_share_packed_weights():
    td.manual_seed(0)
    model = Block(16, NF.relu).eval()
    frozen = td.export.freeze(model, td.randn(1, 16, 12, 12))
    inputs = [td.randn(1 + i % 3, 16, 12, 12) for i in range(8)]
    with td.no_grad():
        wanted = [model(x).numpy() for x in inputs]
    found = [None] * len(inputs)

    def run(i):
        with td.no_grad():
            found[i] = frozen(inputs[i]).numpy()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(inputs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_saved_model_frozen_when_loaded(tmp_path):
    model = Block(8, NF.relu).eval()
    td.export.save(model, td.randn(1, 8, 5, 5), tmp_path / "block.model")
    frozen = td.export.load(tmp_path / "block.model", freeze=True)
    assert count(frozen, "conv_fused") == 3
    x = td.randn(3, 8, 5, 5)
    np.testing.assert_allclose(frozen(x).numpy(), model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_sizes_that_a_frozen_model_does_not_fit_are_refused(tmp_path):
    """They were not looked at, and memory behind a tensor was read."""
    fn = lambda x: x.narrow(0, 0, 4)
    td.export.save(fn, td.randn(6, 5), tmp_path / "m")
    for model in (td.export.freeze(fn, td.randn(6, 5)), td.export.load(tmp_path / "m", freeze=True)):
        assert model(td.ones(8, 5)).shape == (4, 5)
        with pytest.raises(td.ShapeError, match="axis 0 of 'x' must have 4 elements or more: narrow"):
            model(td.ones(3, 5))


def test_inside_a_compiled_function():
    model = Block(8, NF.relu).eval()
    frozen = td.export.freeze(model, td.randn(1, 8, 5, 5))
    x = td.randn(2, 8, 5, 5)
    compiled = td.compile(lambda x: frozen(x).sum())
    np.testing.assert_allclose(compiled(x).numpy(), model(x).sum().detach().numpy(), rtol=1e-4)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("deterministic", [False, True])
def test_the_routine_equals_its_composition(activation, deterministic):
    td.manual_seed(0)
    x, w, b, r = td.randn(2, 8, 6, 6), td.randn(8, 8, 3, 3), td.randn(8), td.randn(2, 8, 6, 6)

    @operator(hidden=True)
    def fused(x: Tensor, w: Tensor, b: Tensor, r: Tensor):  # noqa: F821  operators go by names
        return ConvFused((1, 1), (1, 1), (1, 1), (1, 1), 1, activation, 0.25, 2.0)(x, w, b, r)

    before = td.are_deterministic_algorithms_enabled()
    td.use_deterministic_algorithms(deterministic)
    try:
        y = NF.conv2d(x, w, b, padding=1) + r
        formula = {
            "none": y, "relu": NF.relu(y), "clip": td.clip(y, 0.25, 2.0), "silu": NF.silu(y), "sigmoid": td.sigmoid(y),
            "hardswish": NF.hardswish(y), "leaky_relu": NF.leaky_relu(y, 0.25), "gelu": NF.gelu(y),
        }[activation]  # fmt: skip
        np.testing.assert_allclose(fused(x, w, b, r).numpy(), formula.numpy(), rtol=1e-4, atol=1e-4)
    finally:
        td.use_deterministic_algorithms(before)


def test_images_that_are_cut_and_joined_stay_as_they_lie():
    td.manual_seed(0)
    a, b, c = td.nn.Conv2d(3, 8, 3, padding=1), td.nn.Conv2d(3, 5, 1), td.nn.Conv2d(17, 6, 3)

    def fn(x):
        y = td.relu(a(x))
        return td.relu(c(td.concat([y[:, :4], y, b(x)], 1)))[:, :, 1:]

    frozen = td.export.freeze(fn, td.randn(1, 3, 10, 10))
    for batch in (1, 3):
        x = td.randn(batch, 3, 10, 10)
        np.testing.assert_allclose(frozen(x).numpy(), fn(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_images_of_one_channel_give_results_with_channels_last():
    """One channel lies either way; what follows must not be reordered again and again."""
    convolution = ConvFused((1, 1), (1, 1), (1, 1), (1, 1), 1, "relu", 0.0, 0.0)
    x, w, bias = (Type(td.float32, shape) for shape in ((1, 1, 8, 9), (6, 1, 3, 3), (6,)))
    assert tuple(convolution.output_strides((x, w, bias), [None])) == (432, 1, 54, 6)
    td.manual_seed(0)
    model = td.nn.Sequential(td.nn.Conv2d(1, 6, 3), td.nn.ReLU(), td.nn.Conv2d(6, 1, 1), td.nn.Conv2d(1, 4, 3)).eval()
    frozen = td.export.freeze(model, td.randn(1, 1, 9, 10))
    for batch in (1, 3):
        x = td.randn(batch, 1, 9, 10)
        np.testing.assert_allclose(frozen(x).numpy(), model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "silu", "sigmoid", "hardswish", "leaky_relu", "relu6"])
def test_activations_of_convolutions_by_winograds_method(activation):
    td.manual_seed(0)
    a, b = (td.nn.Conv2d(64, 64, 3, padding=1) for _ in range(2))
    act = getattr(td.nn.functional, activation)

    def fn(x):
        return act(b(act(a(x))) + x)

    x = td.randn(1, 64, 31, 30) * 3
    frozen = td.export.freeze(fn, x, dynamic=False)
    np.testing.assert_allclose(frozen(x).numpy(), fn(x).detach().numpy(), rtol=1e-4, atol=2e-5)


def hard_swish(x):
    """As ONNX files have it."""
    return x * td.clip(x * (1 / 6) + 0.5, 0.0, 1.0)


@pytest.mark.parametrize(
    "activation",
    [
        hard_swish,
        lambda x: x * (td.erf(x / 1.4142135381698608) + 1.0) * 0.5,
        lambda x: x * (td.erf(x * 0.5**0.5) + 1.0) * 0.5,
    ],
)
def test_activations_written_out(activation):
    layer = td.nn.Conv2d(3, 8, 3)
    frozen = td.export.freeze(lambda x: activation(layer(x)), td.randn(1, 3, 8, 8))
    assert [n.op.name for n in frozen.graph.nodes if n.op.name != "input"] == ["conv_fused"]
    x = td.randn(2, 3, 8, 8) * 3
    np.testing.assert_allclose(frozen(x).numpy(), activation(layer(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_other_numbers_are_another_function():
    layer = td.nn.Conv2d(3, 8, 3)
    fn = lambda x: layer(x) * td.clip(layer(x) * 0.2 + 0.5, 0.0, 1.0)
    frozen = td.export.freeze(fn, td.randn(1, 3, 8, 8))
    x = td.randn(2, 3, 8, 8) * 3
    np.testing.assert_allclose(frozen(x).numpy(), fn(x).detach().numpy(), rtol=1e-4, atol=1e-5)


class Bounded(td.nn.Module):
    """A convolution between bounds that are tensors, as files have them."""

    def __init__(self, order):
        super().__init__()
        self.conv = td.nn.Conv2d(3, 8, 3)
        self.register_buffer("low", td.tensor(0.0))
        self.register_buffer("high", td.tensor([[[[0.4]]]]))
        self.order = order

    def forward(self, x):
        return self.order(self.conv(x), self.low, self.high)


@pytest.mark.parametrize(
    "order",
    [
        lambda x, low, high: td.minimum(td.maximum(x, low), high),
        lambda x, low, high: td.maximum(td.minimum(x, high), low),
    ],
)
def test_weights_of_one_element_are_constants(order):
    td.manual_seed(0)
    model = Bounded(order).eval()
    x = td.randn(2, 3, 9, 9)
    frozen = td.export.freeze(model, x)
    assert [n.op.name for n in frozen.graph.nodes if n.op.name != "input"] == ["conv_fused"]
    np.testing.assert_allclose(frozen(x).numpy(), model(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_weight_that_is_nan_stays():
    model = Bounded(lambda x, low, high: x + low).eval()
    model.low.fill_(float("nan"))
    assert bool(td.isnan(td.export.freeze(model, td.randn(1, 3, 9, 9))(td.randn(1, 3, 9, 9))).all())
