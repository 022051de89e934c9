"""Eager training of convolutions on a CUDA device: biases in cuDNN's calls, maxima remembered in bytes, joined records."""

import numpy as np
import pytest

import tandem as td
from tandem import nn

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]

FORMATS = [td.contiguous_format, td.channels_last]


def layers():
    td.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 24, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Flatten(), nn.Linear(24 * 4, 8), nn.ReLU(),
        nn.Linear(8, 5),
    )  # fmt: skip


def gradients(device, layout, dtype=None, look=False):
    model = layers().to(device).to(memory_format=layout)
    td.manual_seed(1)
    x = td.randn(4, 3, 16, 16).to(device).to(memory_format=layout).requires_grad_()
    if look:  # at every gradient: nothing is joined
        for m in model:
            m.register_forward_hook(lambda m, inputs, y: y.register_hook(lambda g: None) and None)
    with td.autocast("cuda", dtype or td.bfloat16, enabled=dtype is not None):
        y = model(x)
    y.float().square().sum().backward()
    return [t.detach().float().cpu().numpy() for t in (y, x.grad, *(p.grad for p in model.parameters()))]


@pytest.mark.parametrize("layout", FORMATS, ids=str)
def test_eager_gradients_are_those_of_the_cpu(layout):
    expected = gradients("cpu", layout)
    for a, e in zip(gradients("cuda", layout), expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=2e-3, atol=2e-3 * np.abs(e).max())
    # bfloat16: where two elements round to one, another of them may be the largest, or below zero
    for dtype, tolerance in ((td.bfloat16, 0.15), (td.float16, 0.05)):
        for a, e in zip(gradients("cuda", layout, dtype), expected, strict=True):
            assert np.linalg.norm(a - e) <= tolerance * np.linalg.norm(e)


@pytest.mark.parametrize("layout", FORMATS, ids=str)
@pytest.mark.parametrize("dtype", [None, td.bfloat16], ids=str)
def test_joined_records_change_no_more_than_the_order_of_sums(layout, dtype):
    for a, e in zip(gradients("cuda", layout, dtype), gradients("cuda", layout, dtype, look=True), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5 if dtype is None else 8e-3, atol=1e-5 * np.abs(e).max())


@pytest.mark.parametrize("dtype", [td.bfloat16, td.float16, td.float32], ids=str)
def test_biases_are_added_wherever_operands_lie(dtype):
    rng = np.random.default_rng(0)
    x, w, b = (rng.normal(size=s) for s in ((3, 16, 9, 7), (24, 16, 3, 3), (24,)))
    tolerance = 1e-4 if dtype is td.float32 else 0.03
    place = lambda a: td.tensor(a, dtype=dtype, device="cuda")
    expected = td.conv2d(*(td.tensor(a) for a in (x, w, b)), padding=1).numpy()
    for layout in FORMATS:
        image, weight = (place(a).to(memory_format=layout) for a in (x, w))
        odd = td.cat([place(b[:1]), place(b)])[1:]  # at an address that plans do not take
        apart = td.stack([place(b), place(b)], 1)[:, 0]
        for bias in (place(b), odd, apart):
            got = td.conv2d(image, weight, bias, padding=1)
            assert got.stride() == td.empty(*got.shape).to(memory_format=layout).stride()
            np.testing.assert_allclose(got.double().cpu().numpy(), expected, atol=tolerance * np.abs(expected).max())
    nothing = td.conv2d(place(x)[:0], place(w), place(b), padding=1)
    assert nothing.shape == (0, 24, 9, 7)


@pytest.mark.parametrize("channels", [1, 3, 4, 7])
@pytest.mark.parametrize("size", [(3, 3), (5,)], ids=str)
def test_images_of_few_channels(channels, size):
    rng = np.random.default_rng(0)
    spatial = (11, 9)[: len(size)]
    x, w, b = (rng.normal(size=s) for s in ((3, channels, *spatial), (24, channels, *size), (24,)))
    convolve = td.conv2d if len(size) == 2 else td.conv1d

    def layers(x, w, b):
        return td.relu(convolve(x, w, b, padding=1)).sum((0, 1))

    expected = layers(*(td.tensor(a).to(td.bfloat16).double() for a in (x, w, b))).numpy()
    place = lambda a: td.tensor(a, dtype=td.bfloat16, device="cuda")
    for layout in FORMATS if len(size) == 2 else FORMATS[:1]:
        image, weight = (place(a).to(memory_format=layout) for a in (x, w))
        for f in (layers, td.compile(layers)):
            got = f(image, weight, place(b)).double().cpu().numpy()
            np.testing.assert_allclose(got, expected, rtol=0.03, atol=0.03 * np.abs(expected).max())


@pytest.mark.parametrize("layout", FORMATS, ids=str)
@pytest.mark.parametrize(
    "windows", [(2, 2, 0, 1), (2, 3, 1, 1), (3, 2, 1, 1), (3, 2, 1, 2), (16, 16, 0, 1), (17, 17, 0, 1)]
)
def test_maxima_and_their_gradients(layout, windows):
    rng = np.random.default_rng(0)
    values = rng.permutation(2 * 8 * 37 * 35).reshape(2, 8, 37, 35).astype(np.float32)

    def run(device, **options):
        x = td.tensor(values, device=device).to(memory_format=layout).requires_grad_()
        y = td.max_pool2d(x, *windows, **options)
        y = y[0] if options else y
        (g,) = td.autograd.grad((y * y).sum(), x, create_graph=True)
        (h,) = td.autograd.grad((g * g).sum(), x)
        return [t.detach().cpu().numpy() for t in (y, g, h)]

    expected = run("cpu")
    for made in (run("cuda"), run("cuda", return_indices=True)):
        for a, e in zip(made, expected, strict=True):
            np.testing.assert_array_equal(a, e)


def test_gradients_of_weights_are_not_rounded_between():
    rng = np.random.default_rng(0)
    x, w, g = (rng.normal(size=s).astype(np.float32) for s in ((96, 300), (260, 300), (96, 260)))
    x, w, g = (td.tensor(a).to(td.bfloat16).float().numpy() for a in (x, w, g))
    weight = td.tensor(w, device="cuda", requires_grad=True)
    with td.autocast("cuda", td.bfloat16):
        y = td.linear(td.tensor(x, device="cuda"), weight)
    y.backward(td.tensor(g, device="cuda").to(td.bfloat16))
    np.testing.assert_allclose(weight.grad.cpu().numpy(), g.T @ x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", FORMATS, ids=str)
@pytest.mark.parametrize("dtype", [td.bfloat16, td.float16], ids=str)
def test_compiled_convolutions_with_relu_show_nan(layout, dtype):
    rng = np.random.default_rng(0)
    x, w, b = (rng.normal(size=s) for s in ((3, 16, 9, 7), (24, 16, 3, 3), (24,)))
    x[1, 3, 4, 4], x[2, 0, 0, 0] = np.nan, -np.inf

    def layers(x, w, b):
        return td.max_pool2d(td.relu(td.conv2d(x, w, b, padding=1)), 1)

    place = lambda a: td.tensor(a, dtype=dtype, device="cuda")
    image, weight = (place(a).to(memory_format=layout) for a in (x, w))
    for bias in (place(b), td.cat([place(b[:1]), place(b)])[1:]):  # the second at an address that plans do not take
        expected = layers(image, weight, bias).float().cpu().numpy()
        assert np.isnan(expected[1]).sum() == 9 * 24
        compiled = td.compile(layers)
        for _ in range(4):
            got = compiled(image, weight, bias).float().cpu().numpy()
            np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
            np.testing.assert_allclose(got, expected, rtol=0.02, atol=0.02)
