import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem import nn
from tandem.ops.conv_fused import ConvFused
from tandem.ops.memory_format import Arrange
from tandem.passes.channels_last import channels_last
from tests.passes.check import check_pass

BY_CHANNEL = F.ConvForward((1, 1), (1, 1), (1, 1), (1, 1), 12)
TYPES = ["f32[8,12,32,32]", "f32[12,1,3,3]", "f32[8,12,32,32]"]


def test_what_comes_in_is_arranged_once():
    def before(x, w, r):
        y = F.Relu()(BY_CHANNEL(x, w))
        return F.Reduce("sum", (2, 3), None)(F.Add()(BY_CHANNEL(y, w), BY_CHANNEL(x, w)))

    def expected(x, w, r):
        x = Arrange((0, 2, 3, 1))(x)
        y = F.Relu()(BY_CHANNEL(x, w))
        return F.Reduce("sum", (2, 3), None)(F.Add()(BY_CHANNEL(y, w), BY_CHANNEL(x, w)))

    check_pass(channels_last, before, expected, TYPES)


def test_where_little_is_won_nothing_changes():
    def comes_out_at_once(x, w, r):
        return BY_CHANNEL(x, w)

    def ours(x, w, r):  # no reordering to save
        w = F.Expand((64, 64, 3, 3))(F.Slice((0, 0, 0, 0), (1, 1, 1, 1), (1, 1, 3, 3))(w))
        x = F.Expand((8, 64, 32, 32))(F.Slice((0, 0, 0, 0), (1, 1, 1, 1), (8, 1, 32, 32))(x))
        conv = F.ConvForward((1, 1), (1, 1), (1, 1), (1, 1), 1)
        return F.Reduce("sum", (2, 3), None)(conv(conv(x, w), w))

    def trains(x, w, r):
        y = BY_CHANNEL(BY_CHANNEL(x, w), w)
        back = F.ConvBackwardWeight((1, 1), (1, 1), (1, 1), (1, 1), 12, (3, 3))
        return back(x, r), F.Reduce("sum", (2, 3), None)(y)

    check_pass(channels_last, comes_out_at_once, comes_out_at_once, TYPES)
    check_pass(channels_last, trains, trains, TYPES)
    check_pass(channels_last, ours, ours, TYPES)


def test_what_is_joined_and_flattened_lies_well():
    """Arranged is the smaller part of what is joined, and positions that become one axis are copied by blocks."""
    fused = ConvFused(*BY_CHANNEL.geometry, "relu", 0.0, 0.0)
    arrange, last, back = Arrange((0, 2, 3, 1)), F.Permute((0, 2, 3, 1)), F.Permute((0, 3, 1, 2))

    def before(x, w, r, b):
        y = F.Concat(1)(fused(x, w, b), F.Relu()(r))
        return F.Reshape((8, 24, 1024))(y), F.Permute((0, 2, 1))(F.Reshape((8, 12, 1024))(fused(x, w, b)))

    def expected(x, w, r, b):
        z = fused(arrange(x), w, b)
        y = back(F.Concat(3)(last(z), last(arrange(F.Relu()(r)))))
        flat = F.Reshape((8, 24, 1024))(Arrange((0, 1, 2, 3))(y))
        return flat, F.Permute((0, 2, 1))(F.Reshape((8, 12, 1024))(z))

    check_pass(channels_last, before, expected, [*TYPES, "f32[12]"])


def test_what_is_padded_lies_as_it_did():
    fused, pad = ConvFused(*BY_CHANNEL.geometry, "relu", 0.0, 0.0), F.Embed((0,) * 4, (1,) * 4, (8, 12, 33, 33))

    def before(x, w, r, b):
        return F.Reduce("sum", (2, 3), None)(fused(pad(fused(x, w, b)), w, b))

    def expected(x, w, r, b):
        return F.Reduce("sum", (2, 3), None)(fused(pad(fused(Arrange((0, 2, 3, 1))(x), w, b)), w, b))

    check_pass(channels_last, before, expected, [*TYPES, "f32[12]"])


def small_net():
    td.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 12, 5, padding=2, groups=4), nn.ReLU(), nn.Conv2d(12, 20, 3, stride=2), nn.AvgPool2d(2),
        nn.Conv2d(20, 20, 3, padding=1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(20, 4),
    ).eval()  # fmt: skip


def uses_it(fn) -> bool:
    return any(node.op.name == "arrange" for node in fn.graph().nodes)


@pytest.mark.parametrize("batch", [4, 1, 0, 7])
def test_a_network_gives_the_same_numbers(batch):
    model = small_net()
    forward = td.compile(lambda x: model(x))
    with td.no_grad():
        forward(td.rand(4, 3, 64, 64))
        assert uses_it(forward)
        x = td.rand(batch, 3, 64, 64)
        np.testing.assert_allclose(forward(x).numpy(), model(x).numpy(), rtol=1e-4, atol=1e-5)
        with td.switches(skip="channels_last"):
            plain = td.compile(lambda x: model(x))
            np.testing.assert_allclose(plain(x).numpy(), model(x).numpy(), rtol=1e-4, atol=1e-5)
            assert not uses_it(plain)


def test_images_that_lie_so_already_and_results_keep_their_layout():
    model = small_net()[:6]
    forward = td.compile(lambda x: model(x))
    with td.no_grad():
        last = td.rand(4, 3, 64, 64).to(memory_format=td.channels_last)
        assert forward(last).stride() == model(last).stride()
        assert not uses_it(forward)
        first = last.contiguous()
        assert forward(first).stride() == model(first).stride()


def test_training_steps_are_left_alone():
    model = small_net().train()

    @td.compile
    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss  # gradients are kept, or else nobody would need the backward pass

    step(td.rand(4, 3, 64, 64))
    assert not uses_it(step)
