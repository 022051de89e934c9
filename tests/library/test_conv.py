import contextlib

import numpy as np
import pytest

import tandem as td
from tandem import _runtime
from tandem.machine import tune
from tests.library.layouts import BFLOAT16, assert_near, garbage, layouts, random, run


def unfold(x, kernel, stride, low, high, dilation):
    """Windows of x: (N, C, out..., kernel...)."""
    x = np.pad(x, [(0, 0), (0, 0), *zip(low, high)])
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    windows = np.lib.stride_tricks.sliding_window_view(x, spans, axis=tuple(range(2, x.ndim)))
    n = len(kernel)
    outer = [slice(None, None, s) for s in stride]
    inner = [slice(None, None, d) for d in dilation]
    return windows[(slice(None), slice(None), *outer, *inner)] if n else windows


def forward(x, w, stride, low, high, dilation, groups):
    windows = unfold(x, w.shape[2:], stride, low, high, dilation)
    n, spatial = len(stride), windows.shape[2 : 2 + len(stride)]
    out = np.empty((x.shape[0], w.shape[0], *spatial))
    ci, co = x.shape[1] // groups, w.shape[0] // groups
    for g in range(groups):
        part = windows[:, g * ci : (g + 1) * ci]
        axes = (1, *range(2 + n, 2 + 2 * n))
        result = np.tensordot(part, w[g * co : (g + 1) * co], axes=(axes, (1, *range(2, 2 + n))))
        out[:, g * co : (g + 1) * co] = np.moveaxis(result, -1, 1)
    return out


def gradients(x, w, g, *geometry):
    """By linearity: <g, conv(x, w)> differentiated one unit vector at a time would be slow, so contract a Jacobian."""
    stride, low, high, dilation, groups = geometry
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    for k in np.ndindex(*w.shape[2:]):
        tap = np.zeros_like(w)
        tap[(slice(None), slice(None), *k)] = 1
        # forward with one tap alive is a strided slice of x; its adjoint puts g back there
        ci, co = x.shape[1] // groups, w.shape[0] // groups
        padded = np.pad(x, [(0, 0), (0, 0), *zip(low, high)])
        place = tuple(slice(i * d, i * d + (o - 1) * s + 1, s) for i, d, o, s in zip(k, dilation, g.shape[2:], stride))
        back = np.zeros_like(padded)
        for group in range(groups):
            cs, os = slice(group * ci, (group + 1) * ci), slice(group * co, (group + 1) * co)
            window = padded[(slice(None), cs, *place)]
            axes = (0, *range(2, g.ndim))
            dw[(os, slice(None), *k)] = np.tensordot(g[:, os], window, axes=(axes, axes))
            back[(slice(None), cs, *place)] = np.moveaxis(
                np.tensordot(g[:, os], w[(os, slice(None), *k)], axes=(1, 0)), -1, 1
            )
        crop = tuple(slice(a, p - b) for a, b, p in zip(low, high, padded.shape[2:]))
        dx += back[(slice(None), slice(None), *crop)]
    return dx, dw


CASES = [
    # x, w, stride, low, high, dilation, groups
    ((2, 3, 9), (4, 3, 3), (1,), (1,), (1,), (1,), 1),
    ((2, 4, 11), (6, 2, 3), (2,), (0,), (2,), (2,), 2),
    ((1, 3, 8, 9), (5, 3, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    ((2, 16, 7, 6), (8, 16, 1, 1), (1, 1), (0, 0), (0, 0), (1, 1), 1),
    ((2, 8, 10, 9), (8, 1, 3, 3), (2, 1), (1, 0), (1, 2), (1, 1), 8),
    ((2, 3, 15, 14), (8, 3, 7, 7), (2, 2), (3, 3), (3, 3), (1, 1), 1),
    ((2, 4, 9, 9), (6, 2, 2, 3), (1, 2), (0, 1), (1, 0), (2, 2), 2),
    ((1, 2, 5, 6, 7), (3, 2, 2, 3, 2), (1, 2, 1), (0, 1, 0), (1, 1, 0), (1, 1, 2), 1),
    ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1), (0, 0), (0, 0), (1, 1), 1),
]  # fmt: skip


@contextlib.contextmanager
def computed_by(way: str):
    """All convolutions that this way takes."""
    _runtime.prefer_convolutions(tune.WAYS.index(way))
    try:
        yield
    finally:
        _runtime.prefer_convolutions(-1)


def channels_last(x):
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_convolution_and_its_gradients(dtype, case):
    x_shape, w_shape, stride, low, high, dilation, groups = CASES[case]
    dtype = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    rng = np.random.default_rng(0)
    x, w = random(rng, x_shape, dtype), random(rng, w_shape, dtype)
    ints = [len(stride), *stride, *low, *high, *dilation, groups]
    wide = [a.astype("float64") for a in (x, w)]
    expected = forward(*wide, stride, low, high, dilation, groups)
    g = random(rng, expected.shape, dtype)
    dx, dw = gradients(*wide, g.astype("float64"), stride, low, high, dilation, groups)
    scale = (w[0].size) ** 0.5 * 2
    for place in (lambda a: a, channels_last):
        xs, gs = place(x), place(g)
        out = place(garbage(expected.shape, dtype))
        assert_near(expected, run("conv_forward", [xs, w], [out], ints), scale=scale)
        assert_near(dx, run("conv_backward_data", [gs, w], [place(garbage(x_shape, dtype))], ints), scale=scale * 2)
        assert_near(dw, run("conv_backward_weight", [xs, gs], [garbage(w_shape, dtype)], ints), scale=scale * 4)
    bias = random(rng, (w_shape[0],), dtype)
    line = bias.astype("float64").reshape(-1, *[1] * len(stride))
    assert_near(expected + line, run("conv_forward", [x, w, bias], [(expected.shape, dtype)], ints), scale=scale)


# Large enough for routines of our own. x, output channels, kernel, stride, low, high
LARGE = [
    # Winograd's method (src/library/conv_winograd.cc): whole blocks and parts of blocks, all paddings
    ((1, 64, 24, 24), 64, 3, (1, 1), (1, 1), (1, 1)),
    ((2, 32, 27, 30), 64, 3, (1, 1), (0, 2), (1, 0)),
    ((3, 64, 21, 18), 32, 3, (1, 1), (2, 1), (2, 0)),
    ((1, 288, 14, 13), 64, 3, (1, 1), (0, 0), (0, 0)),
    ((40, 32, 10, 17), 32, 3, (1, 1), (1, 1), (4, 3)),
    # matrix products (conv_pointwise.cc): images where they are, skipped positions, few positions, many channels
    ((3, 24, 20, 19), 40, 1, (1, 1), (0, 0), (0, 0)),
    ((2, 32, 41, 37), 50, 1, (2, 3), (0, 0), (0, 0)),
    ((8, 64, 5, 5), 96, 1, (1, 1), (0, 0), (0, 0)),
    ((2, 300, 12, 11), 20, 1, (1, 1), (0, 0), (0, 0)),
    ((1, 130, 70, 60), 18, 1, (1, 1), (0, 0), (0, 0)),
]


@pytest.mark.parametrize("case", range(5))
def test_convolutions_in_larger_blocks(case):
    with td.switches(WINOGRAD=2):
        test_convolutions_over_many_channels(case, "winograd")


def test_convolutions_over_many_channels_are_as_exact_as_direct_sums():
    """Against float64, Winograd's method is off by at most half as much again as direct sums are, forward and backward."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s) for s in ((1, 128, 20, 20), (128, 128, 3, 3), (1, 128, 20, 20))]

    def results(dtype):
        x, w, g = (td.tensor(a.astype("float32").astype(dtype)) for a in arrays)
        x.requires_grad_()
        w.requires_grad_()
        y = td.conv2d(x, w, padding=1)
        y.backward(g)
        return [t.detach().numpy() for t in (y, x.grad, w.grad)]

    exact = results("float64")
    with computed_by("winograd"):
        ours = results("float32")
    with computed_by("onednn_first"):
        direct = results("float32")
    for e, a, b in zip(exact, ours, direct, strict=True):
        assert np.sqrt(((a - e) ** 2).mean()) < 1.5 * np.sqrt(((b - e) ** 2).mean())


@pytest.mark.parametrize("way", tune.WAYS)
@pytest.mark.parametrize("case", range(len(LARGE)))
def test_convolutions_over_many_channels(case, way):
    with computed_by(way):
        _check_many_channels(case)


def _check_many_channels(case):
    x_shape, channels, size, stride, low, high = LARGE[case]
    rng = np.random.default_rng(case)
    x, w = random(rng, x_shape, "float32"), random(rng, (channels, x_shape[1], size, size), "float32")
    geometry = stride, low, high, (1, 1), 1
    ints = [2, *stride, *low, *high, 1, 1, 1]
    wide = [a.astype("float64") for a in (x, w)]
    expected = forward(*wide, *geometry)
    g = random(rng, expected.shape, "float32")
    dx, dw = gradients(*wide, g.astype("float64"), *geometry)
    bias = random(rng, (channels,), "float32")

    def near(wanted, got):
        assert np.abs(wanted - got).max() < 4e-5 * wanted.std()

    blank = lambda shape: garbage(shape, "float32")
    wider = lambda shape: garbage((shape[0], shape[1] + 3, *shape[2:]), "float32")[:, 1:-2]  # parts of larger tensors
    for place in (lambda a: a, channels_last, lambda a: np.concatenate([a, a[:, :3]], 1)[:, : a.shape[1]]):
        for empty in (blank, lambda shape: channels_last(blank(shape)), wider):
            near(
                expected + bias[:, None, None], run("conv_forward", [place(x), w, bias], [empty(expected.shape)], ints)
            )
            near(dx, run("conv_backward_data", [place(g), w], [empty(x_shape)], ints))
        near(dw, run("conv_backward_weight", [place(x), place(g)], [garbage(w.shape, "float32")], ints))
    turned = channels_last(w)
    near(expected, run("conv_forward", [x, turned], [blank(expected.shape)], ints))
    near(dx, run("conv_backward_data", [g, turned], [blank(x_shape)], ints))
    near(dw, run("conv_backward_weight", [x, g], [channels_last(garbage(w.shape, "float32"))], ints))


# x, kernel, stride, dilation, padding: parts of blocks of channels, borders, strips, strides that skip positions
DEPTHWISE = [
    ((2, 20, 9, 11), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((2, 16, 9, 12), (3, 3), (2, 2), (1, 1), (1, 1)),
    ((1, 33, 12, 7), (5, 5), (1, 1), (1, 1), (2, 2)),
    ((2, 48, 10, 10), (7, 7), (1, 1), (1, 1), (3, 3)),
    ((2, 17, 10, 13), (3, 2), (1, 1), (2, 3), (2, 0)),
    ((2, 16, 30), (15,), (1,), (1,), (7,)),
    ((2, 18, 31), (3,), (4,), (1,), (0,)),
    ((1, 24, 8, 8), (4, 4), (3, 2), (1, 1), (0, 1)),
    ((1, 18, 3, 2), (5, 5), (1, 1), (1, 1), (2, 2)),
    ((1, 16, 300, 9), (3, 3), (1, 1), (1, 1), (1, 1)),
]


@pytest.mark.parametrize("isa", ["", "avx2", "baseline"])
@pytest.mark.parametrize("case", range(len(DEPTHWISE)))
def test_windows_of_single_channels(case, isa):
    x_shape, kernel, stride, dilation, pad = DEPTHWISE[case]
    rng = np.random.default_rng(case)
    x, w = random(rng, x_shape, "float32"), random(rng, (x_shape[1], 1, *kernel), "float32")
    geometry = stride, pad, pad, dilation, x_shape[1]
    ints = [len(kernel), *stride, *pad, *pad, *dilation, x_shape[1]]
    wide = [a.astype("float64") for a in (x, w)]
    expected = forward(*wide, *geometry)
    g, bias = random(rng, expected.shape, "float32"), random(rng, (x_shape[1],), "float32")
    dx, dw = gradients(*wide, g.astype("float64"), *geometry)
    line = bias.reshape(-1, *[1] * len(kernel))
    near = lambda wanted, got: np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * max(np.abs(wanted).max(), 1))
    places = (lambda a: a), channels_last
    with td.switches(ISA=isa), computed_by("depthwise"):
        for first in places:
            for second in places:
                out, back = second(garbage(expected.shape, "float32")), second(garbage(x_shape, "float32"))
                near(expected + line, run("conv_forward", [first(x), w, bias], [out], ints))
                near(dx, run("conv_backward_data", [first(g), w], [back], ints))
                near(dw, run("conv_backward_weight", [first(x), second(g)], [garbage(w.shape, "float32")], ints))


@pytest.mark.parametrize("size", [1, 3])
def test_convolutions_do_not_depend_on_the_number_of_threads(size):
    with computed_by("winograd" if size == 3 else "pointwise"):
        _check_threads(size)


def test_windows_of_single_channels_do_not_depend_on_the_number_of_threads():
    with computed_by("depthwise"):
        _check_threads(3, groups=64)


def _check_threads(size, groups=1):
    rng = np.random.default_rng(0)
    x, w, g = (random(rng, s, "float32") for s in [(3, 64, 30, 30), (64, 64 // groups, size, size), (3, 64, 30, 30)])
    ints = [2, 1, 1, *[size // 2] * 4, 1, 1, groups]
    results = []
    before = td.get_num_threads()
    try:
        for threads in (1, 2, 5):
            td.set_num_threads(threads)
            results.append([
                run("conv_forward", [x, w], [garbage(g.shape, "float32")], ints).tobytes(),
                run("conv_backward_data", [g, w], [garbage(x.shape, "float32")], ints).tobytes(),
                run("conv_backward_weight", [x, g], [garbage(w.shape, "float32")], ints).tobytes(),
            ])  # fmt: skip
    finally:
        td.set_num_threads(before)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_convolution_takes_any_layout(dtype):
    rng = np.random.default_rng(0)
    x, w, g = random(rng, (2, 4, 6, 5), dtype), random(rng, (6, 4, 3, 3), dtype), random(rng, (2, 6, 6, 5), dtype)
    geometry = (1, 1), (1, 1), (1, 1), (1, 1), 1
    ints = [2, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    expected, (dx, dw) = forward(x, w, *geometry), gradients(x, w, g, *geometry)
    outs = lambda shape: (
        garbage(shape, dtype), channels_last(garbage(shape, dtype)), garbage(shape[::-1], dtype).T,
        garbage((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2],
    )  # fmt: skip
    for xs in [*layouts(x), channels_last(x)]:
        for ws in [*layouts(w), channels_last(w)]:
            assert_near(expected, run("conv_forward", [xs, ws], [(expected.shape, dtype)], ints), scale=8)
    for out in outs(expected.shape):
        assert_near(expected, run("conv_forward", [x, w], [out], ints), scale=8)
    for gs, out in zip(layouts(g), outs(x.shape)):
        assert_near(dx, run("conv_backward_data", [gs, w], [out], ints), scale=16)
    for gs, out in zip(layouts(g), outs(w.shape)):
        assert_near(dw, run("conv_backward_weight", [x, gs], [out], ints), scale=16)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_convolution_of_nothing(dtype):
    ints = [1, 1, 1, 1, 1, 1]
    w = np.ones((4, 3, 3), dtype)
    assert run("conv_forward", [np.empty((0, 3, 5), dtype), w], [((0, 4, 5), dtype)], ints).shape == (0, 4, 5)
    dw = run("conv_backward_weight", [np.empty((0, 3, 5), dtype), np.empty((0, 4, 5), dtype)], [(w.shape, dtype)], ints)
    np.testing.assert_array_equal(dw, 0)
    bias = np.arange(4).astype(dtype)
    y = run("conv_forward", [np.empty((2, 0, 5), dtype), np.empty((4, 0, 3), dtype), bias], [((2, 4, 5), dtype)], ints)
    np.testing.assert_array_equal(y, np.broadcast_to(bias[:, None], (2, 4, 5)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("channels", "each", "kernel", "stride", "padding", "dilation", "size"),
    [
        (5, 1, (3, 3), (1, 1), (1, 1), (1, 1), (9, 11)),
        (4, 2, (3, 3), (2, 2), (1, 1), (1, 1), (9, 12)),
        (6, 1, (5, 5), (1, 1), (2, 2), (2, 2), (13, 9)),
        (3, 3, (2, 4), (2, 3), (0, 0), (1, 1), (8, 17)),
        (4, 1, (7, 7), (1, 1), (3, 3), (1, 1), (3, 3)),  # most of the window is outside
        (2, 1, (1, 3), (3, 1), (0, 4), (1, 2), (4, 5)),
    ],
)
def test_windows_of_single_channels_by_our_own_code(dtype, channels, each, kernel, stride, padding, dilation, size):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, channels, *size)), rng.normal(size=(channels * each, 1, *kernel))
    bias = rng.normal(size=channels * each)

    def results(dtype, groups):
        # As one group, weights between other channels are zeros.
        weights = w
        if groups == 1:
            weights = np.zeros((channels * each, channels, *kernel))
            for o in range(channels * each):
                weights[o, o // each] = w[o, 0]
        given = [td.tensor(a.astype(dtype), requires_grad=True) for a in (x, weights, bias)]
        y = td.conv2d(*given, stride=stride, padding=padding, dilation=dilation, groups=groups)
        (y * y).sum().backward()
        made = [t.numpy() for t in (y.detach(), *(t.grad for t in given))]
        if groups == 1:
            made[2] = np.stack([made[2][o, o // each] for o in range(channels * each)])[:, None]
        return made

    expected = results(np.float64, 1)
    td.use_deterministic_algorithms(True)
    try:
        found = results(dtype, channels)
    finally:
        td.use_deterministic_algorithms(False)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=(2e-6 if dtype is np.float32 else 1e-14) * np.abs(b).max())
