import itertools

import numpy as np
import pytest

import tandem as td
from tests.check import assert_close, check_op

RNG = np.random.default_rng(11)


def distinct(*shape):
    """Random order of well separated numbers, so that maxima do not change under small differences."""
    return RNG.permutation(np.arange(np.prod(shape))).reshape(shape).astype(np.float32) / 7


def windows(x, kernel, stride, padding, dilation=1, ceil=False):
    """(output position, input positions inside) of every window, the same numbers on all axes."""
    sizes = []
    for n in x.shape[2:]:
        reach = n + 2 * padding - dilation * (kernel - 1) - 1
        out = -(-reach // stride) + 1 if ceil else reach // stride + 1
        sizes.append(out - 1 if ceil and (out - 1) * stride >= n + padding else out)
    for at in itertools.product(*(range(s) for s in sizes)):
        taps = [[a * stride - padding + t * dilation for t in range(kernel)] for a in at]
        yield tuple(sizes), at, taps


def pool(x, reduce, **options):
    y = None
    for sizes, at, taps in windows(x, **options):
        y = np.zeros((*x.shape[:2], *sizes)) if y is None else y
        y[(slice(None), slice(None), *at)] = reduce(x, taps)
    return y


def inside(x, taps):
    kept = [[t for t in axis if 0 <= t < n] for axis, n in zip(taps, x.shape[2:], strict=True)]
    return x[np.ix_(range(x.shape[0]), range(x.shape[1]), *kept)].reshape(*x.shape[:2], -1).astype(np.float64)


def largest(x, taps):
    return inside(x, taps).max(-1)


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_max_pool(spatial):
    op = (td.max_pool1d, td.max_pool2d, td.max_pool3d)[spatial - 1]
    x = distinct(2, 2, *(5, 4, 3)[:spatial]) if spatial < 3 else distinct(1, 2, 4, 3, 3)
    check_op(op, lambda x: pool(x, largest, kernel=2, stride=2, padding=0), inputs=[(x,)], args=(2,))
    options = {"stride": 2, "padding": 1, "ceil_mode": True}
    check_op(
        op,
        lambda x: pool(x, largest, kernel=3, stride=2, padding=1, ceil=True),
        inputs=[(x,)],
        args=(3,),
        kwargs=options,
    )


def test_max_pool_dilation_and_indices():
    x = distinct(1, 2, 6, 6)
    values, indices = td.max_pool2d(td.tensor(x), 2, stride=1, dilation=3, return_indices=True)
    assert_close(values, pool(x, largest, kernel=2, stride=1, padding=0, dilation=3))
    flat = x.reshape(1, 2, 36)
    assert_close(values, np.take_along_axis(flat, indices.numpy().reshape(1, 2, -1), -1).reshape(values.shape))


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("include", [True, False])
def test_avg_pool(spatial, include):
    op = (td.avg_pool1d, td.avg_pool2d, td.avg_pool3d)[spatial - 1]
    x = distinct(1, 2, *((7,), (5, 4), (4, 3, 3))[spatial - 1])

    def average(x, taps):
        count = np.prod([sum(t < n + 1 for t in axis) for axis, n in zip(taps, x.shape[2:], strict=True)])
        values = inside(x, taps)
        return values.sum(-1) / (count if include else values.shape[-1])

    options = {"stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": include}
    check_op(
        op,
        lambda x: pool(x, average, kernel=3, stride=2, padding=1, ceil=True),
        inputs=[(x,)],
        args=(3,),
        kwargs=options,
    )


def test_avg_pool_divisor():
    x = distinct(1, 2, 5, 4)

    def reference(x):
        return pool(x, lambda x, taps: inside(x, taps).sum(-1) / 5, kernel=3, stride=2, padding=1, ceil=True)

    options = {"stride": 2, "padding": 1, "ceil_mode": True, "divisor_override": 5}
    check_op(td.avg_pool2d, reference, inputs=[(x,)], args=(3,), kwargs=options)


def adaptive(x, sizes, reduce):
    y = np.zeros((*x.shape[:2], *sizes))
    for at in itertools.product(*(range(s) for s in sizes)):
        taps = [list(range(a * n // s, -(-(a + 1) * n // s))) for a, n, s in zip(at, x.shape[2:], sizes, strict=True)]
        y[(slice(None), slice(None), *at)] = reduce(inside(x, taps))
    return y


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_adaptive_pools(spatial):
    x = distinct(2, 2, *(5, 3, 2)[:spatial])
    sizes = (3, 2, 2)[:spatial]
    average = (td.adaptive_avg_pool1d, td.adaptive_avg_pool2d, td.adaptive_avg_pool3d)[spatial - 1]
    largest = (td.adaptive_max_pool1d, td.adaptive_max_pool2d, td.adaptive_max_pool3d)[spatial - 1]
    check_op(average, lambda x: adaptive(x, sizes, lambda v: v.mean(-1)), inputs=[(x,)], args=(sizes,))
    check_op(average, lambda x: x.mean(tuple(range(2, x.ndim)), keepdims=True), inputs=[(x,)], args=(1,))
    check_op(largest, lambda x: adaptive(x, sizes, lambda v: v.max(-1)), inputs=[(x,)], args=(sizes,))


def test_channels_last_stays():
    x = td.tensor(distinct(2, 4, 4, 3)).permute(0, 3, 1, 2).requires_grad_()
    for y in (td.max_pool2d(x, 2), td.avg_pool2d(x, 2)):
        assert y.permute(0, 2, 3, 1).is_contiguous()
        x.grad = None
        (y * y).sum().backward()
        assert x.grad.permute(0, 2, 3, 1).is_contiguous()


@pytest.mark.parametrize("channels", [1, 3, 24, 29, 70, 167])
def test_any_number_of_channels_is_pooled(channels):
    """What is no multiple of a vector, with windows cut by the edges, with and without positions, with NaN."""
    td.manual_seed(channels)
    x = td.randn(2, channels, 7, 9)
    x[1, channels // 2, 3, 4] = float("nan")
    last, pool = x.contiguous(memory_format=td.channels_last), {"kernel_size": 3, "stride": 2, "padding": 1}
    values = td.export.freeze(lambda x: td.nn.functional.max_pool2d(x, **pool).relu(), last, dynamic=False)
    expected, where = td.nn.functional.max_pool2d(x, **pool, return_indices=True)
    given, positions = td.nn.functional.max_pool2d(last, **pool, return_indices=True)
    np.testing.assert_array_equal(expected.numpy(), given.numpy())
    np.testing.assert_array_equal(where.numpy(), positions.numpy())
    np.testing.assert_array_equal(expected.relu().numpy(), values(last).numpy())
    means = [td.nn.functional.avg_pool2d(t, **pool).numpy() for t in (x, last)]
    np.testing.assert_allclose(*means, rtol=1e-6, atol=1e-6)


def test_windows_of_padding_alone_are_refused():
    x = td.zeros(1, 1, 1, 4)
    for call in (td.max_pool2d, td.compile(td.max_pool2d)):
        with pytest.raises(td.ShapeError, match="has no element of x"):
            call(x, 2, stride=1, padding=1, dilation=2)
    y = td.max_pool1d(td.tensor([[1.0, 2.0]]).requires_grad_(), 3, stride=1, padding=1, dilation=1)
    assert y.tolist() == [[2.0, 2.0]]
    taps_on_one_element = td.max_pool1d(td.tensor([[3.0]]), 3, stride=1, padding=1, dilation=1)
    assert taps_on_one_element.tolist() == [[3.0]]


def test_errors():
    with pytest.raises(td.ValueRangeError, match="half"):
        td.max_pool2d(td.zeros(1, 1, 4, 4), 2, padding=2)
    with pytest.raises(td.ShapeError, match="do not fit"):
        td.avg_pool2d(td.zeros(1, 1, 2, 2), 3)
