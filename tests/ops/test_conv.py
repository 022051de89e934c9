import itertools

import numpy as np
import pytest

import tandem as td
from tests.check import assert_close, check_op

RNG = np.random.default_rng(7)


def conv(x, w, b=None, stride=1, low=0, high=None, dilation=1, groups=1):
    """A convolution with the same numbers on every axis, written as one sum."""
    high = low if high is None else high
    spatial = x.ndim - 2
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0)] + [(low, high)] * spatial)
    out = [(n - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[2:], w.shape[2:], strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    per_in, per_out = x.shape[1] // groups, w.shape[0] // groups
    for g in range(groups):
        xs, ws = x[:, g * per_in : (g + 1) * per_in], w[g * per_out : (g + 1) * per_out]
        for tap in itertools.product(*(range(k) for k in w.shape[2:])):
            at = tuple(
                slice(t * dilation, t * dilation + (n - 1) * stride + 1, stride) for t, n in zip(tap, out, strict=True)
            )
            y[:, g * per_out : (g + 1) * per_out] += np.einsum(
                "nc...,oc->no...", xs[(slice(None), slice(None), *at)], ws[(slice(None), slice(None), *tap)]
            )
    return y if b is None else y + b.reshape((1, -1) + (1,) * spatial)


def arrays(*shapes, dtype=np.float32):
    return tuple(RNG.normal(size=s).astype(dtype) for s in shapes)


CASES = [
    (td.conv1d, ((2, 3, 7), (4, 3, 3), (4,)), {}, {}),
    (td.conv1d, ((2, 4, 8), (6, 2, 3)), {"stride": 2, "padding": 1, "groups": 2}, {"stride": 2, "low": 1, "groups": 2}),
    (td.conv2d, ((1, 2, 4, 3), (3, 2, 3, 2), (3,)), {"padding": "same"}, {"low": (1, 0), "high": (1, 1)}),
    (
        td.conv2d,
        ((2, 2, 5, 5), (2, 1, 3, 3)),
        {"dilation": 2, "padding": 2, "groups": 2},
        {"dilation": 2, "low": 2, "groups": 2},
    ),
    (td.conv3d, ((1, 2, 3, 3, 4), (2, 2, 2, 2, 2), (2,)), {"padding": 1, "stride": 2}, {"low": 1, "stride": 2}),
]


def asymmetric(x, w, b, low, high):
    pads = [(0, 0), (0, 0), *zip(low, high, strict=True)]
    return conv(np.pad(x, pads), w, b)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0].__name__}-{c[2]}")
def test_convolution(case):
    op, shapes, options, plain = case

    def reference(x, w, b=None):
        return asymmetric(x, w, b, **plain) if isinstance(plain.get("low"), tuple) else conv(x, w, b, **plain)

    check_op(op, reference, inputs=[arrays(*shapes)], kwargs=options, rtol=1e-4, atol=1e-5, deferred="sizes")


TRANSPOSED = [
    (td.conv_transpose1d, ((2, 3, 4), (3, 2, 3), (2,)), {"stride": 2, "padding": 1, "output_padding": 1}),
    (td.conv_transpose2d, ((1, 4, 3, 2), (4, 2, 2, 3)), {"groups": 2, "dilation": 2}),
    (td.conv_transpose3d, ((1, 2, 2, 2, 2), (2, 1, 2, 2, 2), (1,)), {"stride": 2}),
]


@pytest.mark.parametrize("case", TRANSPOSED, ids=lambda c: c[0].__name__)
def test_transposed_convolution(case):
    """It is the adjoint: <conv_t(x), y> = <x, conv(y)> for every y."""
    op, shapes, options = case

    def reference(x, w, b=None):
        stride, low, dilation = options.get("stride", 1), options.get("padding", 0), options.get("dilation", 1)
        groups, extra = options.get("groups", 1), options.get("output_padding", 0)
        size = [
            (n - 1) * stride - 2 * low + dilation * (k - 1) + extra + 1
            for n, k in zip(x.shape[2:], w.shape[2:], strict=True)
        ]
        shape = (x.shape[0], w.shape[1] * groups, *size)
        y = np.zeros(shape)
        for position in np.ndindex(*shape):
            unit = np.zeros(shape)
            unit[position] = 1
            y[position] = (conv(unit, w, None, stride, low, None, dilation, groups) * x).sum()
        return y if b is None else y + b.reshape((1, -1) + (1,) * (x.ndim - 2))

    check_op(op, reference, inputs=[arrays(*shapes)], kwargs=options, rtol=1e-4, atol=1e-5, deferred="sizes")


def test_without_batch_axis():
    x, w = arrays((3, 5, 5), (2, 3, 3, 3))
    assert_close(td.conv2d(td.tensor(x), td.tensor(w)), conv(x[None], w)[0], rtol=1e-4, atol=1e-5)


def test_channels_last_stays():
    x, w = arrays((2, 3, 5, 5), (4, 3, 3, 3))
    last = td.tensor(np.ascontiguousarray(x.transpose(0, 2, 3, 1))).permute(0, 3, 1, 2).requires_grad_()
    y = td.conv2d(last, td.tensor(w))
    assert y.permute(0, 2, 3, 1).is_contiguous()
    (y * y).sum().backward()
    assert last.grad.permute(0, 2, 3, 1).is_contiguous()
    weight = td.tensor(w).to(memory_format=td.channels_last)
    assert td.conv2d(td.tensor(x), weight).is_contiguous(memory_format=td.channels_last)


def test_errors():
    x, w = td.zeros(1, 3, 5, 5), td.zeros(4, 2, 3, 3)
    with pytest.raises(td.ShapeError, match="channels"):
        td.conv2d(x, w)
    with pytest.raises(td.ShapeError, match="does not fit"):
        td.conv2d(x, td.zeros(4, 3, 7, 7))
    with pytest.raises(td.ValueRangeError, match="stride 1"):
        td.conv2d(x, td.zeros(4, 3, 3, 3), stride=2, padding="same")
    with pytest.raises(td.ValueRangeError, match="output_padding"):
        td.conv_transpose2d(x, td.zeros(3, 1, 3, 3), output_padding=1)
