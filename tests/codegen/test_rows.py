"""Kernels that pass over a row several times: what one pass computes at a price, later ones read again where it was kept."""

import random

import numpy as np
import pytest

import tandem as td


def _norm_of_silu(x):
    z = x * td.sigmoid(x)
    y = z * (z.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()
    return y, td.softmax(y, -1), z


def _centred(x):
    c = x.tanh()
    h = c - c.mean(1, keepdim=True)
    return h, c / ((h * h).mean(1, keepdim=True) + 1).sqrt()


def _two_costly(x):
    c, d = x.tanh(), x.exp()
    mean = (c * d).mean(1, keepdim=True)
    a = x - mean
    total = (a * a + c).mean(1, keepdim=True)
    return a, c * total, d * total + mean, d - c


@pytest.mark.parametrize("f", [_norm_of_silu, _centred, _two_costly])
@pytest.mark.parametrize("shape", [(4, 6), (3, 300), (40, 40)])
def test_a_value_is_not_read_where_a_result_has_replaced_it(f, shape):
    td.manual_seed(0)
    x = td.randn(shape, dtype=td.float64)
    for ours, expected in zip(td.compile(f)(x), f(x), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-13)


def test_a_costly_value_of_three_passes_is_computed_once():
    norm = td.compile(lambda x: td.nn.functional.layer_norm(td.nn.functional.dropout(x, 0.1), (64,)))
    norm(td.ones(300, 64))
    (kernel,) = [s.kernel for s in norm.graph().schedule.steps if "philox" in str(s.kernel)]
    assert str(kernel).count("philox") == 1
    passes = str(kernel).split("loop vector")[1:]
    assert ["philox" in p for p in passes] == [True, False, False]


def _random_rows(seed: int, x):
    """Elementwise steps, dear and cheap ones, between means and maxima of rows; several of the values are results."""
    r = random.Random(seed)
    values = [x]
    for _ in range(r.randrange(4, 12)):
        a, b = r.choice(values), r.choice(values[-3:])
        kind = r.random()
        if kind < 0.35:
            values.append(r.choice([td.tanh, td.sigmoid, lambda t: td.exp(-t * t), lambda t: td.sqrt(t * t + 1)])(b))
        elif kind < 0.7:
            values.append(r.choice([td.add, td.subtract, td.multiply, lambda s, t: s / (t * t + 1)])(a, b))
        else:
            reduce = r.choice([td.mean, td.amax])
            values.append(r.choice([td.subtract, td.multiply])(a, reduce(b, -1, keepdims=True)))
    return tuple(r.sample(values[1:], r.randrange(1, min(4, len(values) - 1) + 1)))


def _check_random_rows(seed: int):
    x = td.randn(5, random.Random(seed).choice([3, 8, 33]), dtype=td.float64)
    f = lambda x: _random_rows(seed, x)
    for ours, expected in zip(td.compile(f)(x), f(x), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_random_rows(seed):
    _check_random_rows(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 900, 100))
def test_more_random_rows(first):
    for seed in range(first, first + 100):
        _check_random_rows(seed)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("length", [1, 3, 8, 9, 16, 17])
def test_short_rows_are_reduced_side_by_side(dtype, length):
    """Many rows that fill no vector, in plans of their own and compiled; of several extrema the first counts, and NaN is one."""
    rng = np.random.default_rng(length)
    x = td.tensor(rng.integers(-9, 9, (64, 700, length)).astype(np.float32))
    if dtype == "float32":
        x[3, 5, length // 2] = np.nan
    x = x.to(getattr(td, dtype))
    plain = x.to(td.float32).numpy()
    for shape in ((64, 700, length), (700, 64, length)):
        x, plain = x.reshape(*shape), plain.reshape(shape)
        for run in (lambda f: f, td.compile):
            np.testing.assert_array_equal(run(lambda x: td.argmax(x, -1))(x).numpy(), plain.argmax(-1))
            np.testing.assert_array_equal(run(lambda x: td.amin(x, -1).to(td.float32))(x).numpy(), plain.min(-1))
            np.testing.assert_array_equal(run(lambda x: td.sum(x, -1).to(td.float32))(x).numpy(), plain.sum(-1))
            values, places = run(lambda x: td.max(x * 2, -1))(x)
            np.testing.assert_array_equal(places.numpy(), plain.argmax(-1))
            np.testing.assert_array_equal(values.to(td.float32).numpy(), 2 * plain.max(-1))


@pytest.mark.parametrize("norms", [2, 3, 4])
@pytest.mark.parametrize("dtype", [td.float32, td.float64])
def test_gradients_of_norms_in_a_row(norms, dtype):
    """What is kept for a pass is read there by a sum and by a result that replaces it, and that does not read it itself."""
    td.manual_seed(0)
    x, w = td.randn(6, 16, dtype=dtype, requires_grad=True), td.randn(6, 16, dtype=dtype)
    scales = [td.randn(16, dtype=dtype, requires_grad=True) for _ in range(norms)]

    def gradients():
        y = x
        for s in scales:
            y = td.nn.functional.layer_norm(y, (16,), s, s)
        return td.autograd.grad((y * w).sum(), [x, *scales])

    close = 1e-3 if dtype is td.float32 else 1e-10
    for ours, expected in zip(td.compile(gradients)(), gradients(), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=close, atol=close)
