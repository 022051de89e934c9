import itertools

import numpy as np
import pytest

from tests.library.layouts import BFLOAT16, FLOATS, INTEGERS, assert_near, garbage, layouts, random, run
from tests.library.test_conv import channels_last


def windows(size, out, kernel, stride, low, high, dilation):
    """For each output: the positions inside, and how many count with padding."""
    result = []
    for i in range(out):
        taps = [i * stride - low + t * dilation for t in range(kernel)]
        result.append(([t for t in taps if 0 <= t < size], sum(t < size + high for t in taps)))
    return result


def adaptive_windows(size, out):
    spans = [range(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]
    return [(list(s), len(s)) for s in spans]


def each_output(axes):
    """(position of the output, index of its elements, size with padding)"""
    for position in itertools.product(*[range(len(a)) for a in axes]):
        chosen = [a[i] for a, i in zip(axes, position)]
        yield position, np.ix_(*[c[0] for c in chosen]), int(np.prod([c[1] for c in chosen]))


def reference(x, axes, kind, include_pad=False):
    shape = (*x.shape[:2], *[len(a) for a in axes])
    values, indices = np.zeros(shape, x.dtype), np.zeros(shape, "int64")
    flat = np.arange(np.prod(x.shape[2:])).reshape(x.shape[2:])
    for position, index, size in each_output(axes):
        part = x[(slice(None), slice(None), *index)].reshape(*x.shape[:2], -1)
        at = (slice(None), slice(None), *position)
        if kind == "max":
            order = np.argmax(part, axis=-1)
            values[at] = np.take_along_axis(part, order[..., None], -1)[..., 0]
            indices[at] = flat[index].reshape(-1)[order]
        else:
            values[at] = part.sum(-1) / (size if include_pad else part.shape[-1])
    return (values, indices) if kind == "max" else values


def average_backward(g, x_shape, axes, include_pad=False):
    dx = np.zeros(x_shape)
    for position, index, size in each_output(axes):
        count = size if include_pad else np.prod([i.size for i in index])
        share = g[(slice(None), slice(None), *position)] / count
        dx[(slice(None), slice(None), *index)] += share.reshape(*share.shape, *[1] * len(axes))
    return dx


CASES = [
    # x, out, kernel, stride, low, high, dilation
    ((2, 3, 10), (5,), (2,), (2,), (0,), (0,), (1,)),
    ((2, 3, 9, 8), (5, 4), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
    ((1, 20, 7, 7), (7, 7), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    ((2, 3, 10, 9), (5, 5), (3, 2), (2, 2), (1, 0), (1, 0), (1, 1)),  # the last windows reach over the edge: ceil_mode
    ((1, 2, 12, 300), (4, 150), (2, 3), (3, 2), (1, 1), (1, 1), (2, 1)),
    ((1, 2, 5, 6, 7), (2, 3, 3), (2, 2, 3), (2, 2, 2), (0, 0, 1), (0, 0, 1), (1, 1, 1)),
]  # fmt: skip
places = pytest.mark.parametrize("place", [lambda a: a, channels_last], ids=["first", "last"])


def attributes(case):
    _, _, *lists = case
    return [len(case[1]), *itertools.chain(*lists)]


def axes_of(case):
    x_shape, out, *lists = case
    return [windows(n, o, *values) for n, o, *values in zip(x_shape[2:], out, *lists)]


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("case", range(len(CASES)))
@places
def test_pool_max(dtype, case, place):
    case = CASES[case]
    x = random(np.random.default_rng(0), case[0], dtype)
    if x.dtype.kind in "iu":
        x = x % 5  # ties
    wide = x.astype("float32") if dtype == BFLOAT16 else x
    values, indices = reference(wide, axes_of(case), "max")
    outs = place(garbage(values.shape, dtype)), place(garbage(values.shape, "int64"))
    got, where = run("pool_max", [place(x)], outs, attributes(case))
    np.testing.assert_array_equal(got.astype(wide.dtype), values)
    np.testing.assert_array_equal(where, indices)
    alone = run("pool_max_values", [place(x)], [place(garbage(values.shape, dtype))], attributes(case))
    np.testing.assert_array_equal(alone.astype(wide.dtype), values)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize(
    "place", [lambda a: a, channels_last, lambda a: np.swapaxes(np.swapaxes(a, 2, -1).copy(), 2, -1)]
)
def test_pool_max_backward(dtype, case, place):
    case = CASES[case]
    rng = np.random.default_rng(0)
    x = random(rng, case[0], "float64")
    _, indices = reference(x, axes_of(case), "max")
    g = random(rng, indices.shape, dtype)
    dx = np.zeros((*x.shape[:2], np.prod(x.shape[2:])))
    for n, c in np.ndindex(*x.shape[:2]):
        np.add.at(dx[n, c], indices[n, c].reshape(-1), g[n, c].astype("float64").reshape(-1))
    got = run("pool_max_backward", [place(g), place(indices)], [place(garbage(x.shape, dtype))], [len(case[1])])
    assert_near(dx.reshape(x.shape), got, scale=2)


def test_pool_max_backward_checks_positions():
    with pytest.raises(IndexError, match="9"):
        run("pool_max_backward", [np.ones((1, 1, 1), "float32"), np.full((1, 1, 1), 9)], [((1, 1, 4), "float32")], [1])


@places
def test_pool_max_propagates_nan_and_handles_infinity(place):
    x = np.full((1, 2, 4, 4), -np.inf, "float32")
    x[0, 0, 1, 1] = np.nan
    got, where = run(
        "pool_max", [place(x)], [((1, 2, 2, 2), "float32"), ((1, 2, 2, 2), "int64")], [2, 2, 2, 2, 2, 0, 0, 0, 0, 1, 1]
    )
    np.testing.assert_array_equal(got[0, 0], [[np.nan, -np.inf], [-np.inf, -np.inf]])
    np.testing.assert_array_equal(where[0, 0], [[5, 2], [8, 10]])
    np.testing.assert_array_equal(where[0, 1], [[0, 2], [8, 10]])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("include_pad", [0, 1])
@pytest.mark.parametrize("case", range(len(CASES)))
@places
def test_pool_avg_and_its_gradient(dtype, include_pad, case, place):
    case = CASES[case]
    rng = np.random.default_rng(0)
    x = random(rng, case[0], dtype)
    expected = reference(x.astype("float64"), axes_of(case), "avg", include_pad)
    ints = [*attributes(case), include_pad]
    assert_near(expected, run("pool_avg", [place(x)], [place(garbage(expected.shape, dtype))], ints))
    g = random(rng, expected.shape, dtype)
    dx = average_backward(g.astype("float64"), x.shape, axes_of(case), include_pad)
    assert_near(dx, run("pool_avg_backward", [place(g)], [place(garbage(x.shape, dtype))], ints), scale=2)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "shape,out",
    [
        ((2, 3, 10), (4,)),
        ((2, 5, 9, 7), (4, 3)),
        ((1, 4, 6, 6), (1, 1)),
        ((1, 2, 3, 4), (5, 7)),
        ((1, 2, 5, 4, 6), (2, 3, 4)),
    ],
)
@places
def test_adaptive_pools(dtype, shape, out, place):
    rng = np.random.default_rng(0)
    x = random(rng, shape, dtype)
    axes = [adaptive_windows(n, o) for n, o in zip(shape[2:], out)]
    expected = reference(x.astype("float64"), axes, "avg")
    assert_near(expected, run("pool_adaptive_avg", [place(x)], [place(garbage(expected.shape, dtype))], [len(out)]))
    g = random(rng, expected.shape, dtype)
    dx = average_backward(g.astype("float64"), shape, axes)
    assert_near(dx, run("pool_adaptive_avg_backward", [place(g)], [place(garbage(shape, dtype))], [len(out)]), scale=2)
    values, indices = reference(x.astype("float64"), axes, "max")
    got, where = run("pool_adaptive_max", [place(x)], [(values.shape, dtype), (values.shape, "int64")], [len(out)])
    np.testing.assert_array_equal(got.astype("float64"), values)
    np.testing.assert_array_equal(where, indices)


def test_pools_take_any_layout():
    x = random(np.random.default_rng(0), (2, 3, 8, 6), "float32")
    case = ((2, 3, 8, 6), (4, 3), (2, 2), (2, 2), (0, 0), (0, 0), (1, 1))
    values, indices = reference(x, axes_of(case), "max")
    mean = reference(x.astype("float64"), axes_of(case), "avg")
    for y in layouts(x):
        got, where = run(
            "pool_max", [y], [garbage((3, 4, 3, 2), "float32").T, ((2, 3, 4, 3), "int64")], attributes(case)
        )
        np.testing.assert_array_equal(got, values)
        np.testing.assert_array_equal(where, indices)
        assert_near(mean, run("pool_avg", [y], [garbage((3, 4, 3, 2), "float32").T], [*attributes(case), 0]))
