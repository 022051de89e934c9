"""One accuracy for sums of every axis and layout: that of a short sum, rounded once."""

import numpy as np
import pytest

import tandem as td

BAR = 3e-7  # of 2^-24 for one rounding; a running sum of these sizes is off by 1e-5 to 1e-3
SHAPES = [
    ((200_000, 3), 0),
    ((20_000, 30), 0),
    ((3, 200_000), 1),
    ((3, 20_000, 10), 1),
    ((4, 5, 30, 1000), (0, 2, 3)),
    ((600_000,), None),
    ((1000, 600), None),
    ((9, 100), 1),
    ((100, 9), 0),
]
LAYOUTS = {
    "row-major": lambda x, f, axis: f(td.tensor(x), axis),
    "strided": lambda x, f, axis: f(td.tensor(np.repeat(x, 2, -1))[..., ::2], axis),
    "transposed": lambda x, f, axis: f(td.permute(td.tensor(np.ascontiguousarray(x.T)), range(x.ndim)[::-1]), axis),
}
FUNCTIONS = {
    "sum": (td.sum, np.sum),
    "mean": (td.mean, np.mean),
    "norm": (lambda x, axis: td.vector_norm(x, 2, axis), lambda x, axis: np.sqrt(np.sum(x * x, axis))),
    "sum of exp": (
        lambda x, axis: td.compile(lambda v: td.sum(td.exp(v), axis))(x),
        lambda x, axis: np.exp(x).sum(axis),
    ),
}


def _error(got, want):
    return np.max(np.abs(np.asarray(got, np.float64) - want) / np.abs(want))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sums_are_as_good_as_a_short_one(name, layout):
    ours, exact = FUNCTIONS[name]
    for shape, axis in SHAPES:
        for x in (np.full(shape, 0.1, np.float32), np.random.default_rng(0).random(shape, np.float32)):
            got = LAYOUTS[layout](x, ours, axis).numpy()
            assert _error(got, exact(x.astype(np.float64), axis)) < BAR, (shape, axis)


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_variances_are_rounded_once(offset):
    for shape, axis in SHAPES:
        x = np.random.default_rng(0).random(shape, np.float32) + np.float32(offset)
        assert _error(td.var(td.tensor(x), axis).numpy(), np.var(x.astype(np.float64), axis)) < BAR


def test_gradients_of_what_is_broadcast_are_such_sums():
    b = td.zeros(8, 1, 1, requires_grad=True)
    x = np.full((16, 8, 50, 50), 0.1, np.float32)
    (td.tensor(x) * (1 + b)).sum().backward()
    assert _error(b.grad.numpy().reshape(8), x.astype(np.float64).sum((0, 2, 3))) < BAR


def test_sums_do_not_depend_on_threads():
    x = td.tensor(np.random.default_rng(0).random((3000, 70), np.float32))
    threads = td.get_num_threads()
    try:
        results = []
        for n in (1, 2, 3):
            td.set_num_threads(n)
            results.append([td.sum(x).item(), td.sum(x, 0).numpy(), td.sum(x, 1).numpy(), td.var(x, 0).numpy()])
    finally:
        td.set_num_threads(threads)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("ord", [0.5, -0.5, -1.0, 1.5])
def test_nothing_flows_through_zeros_of_a_norm(ord):
    x = td.tensor([0.0, 1.0, 4.0], requires_grad=True)
    td.vector_norm(x, ord).backward()
    expected = [0.0, 0.0, 0.0] if ord < 0 else [0.0, *_norm_gradient(np.array([1.0, 4.0]), ord)]
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-6)


def _norm_gradient(x, ord):
    return x ** (ord - 1) * np.sum(x**ord) ** (1 / ord - 1)


def test_a_power_of_zero_changes_with_a_negative_exponent():
    y = td.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    (td.zeros(3) ** y).sum().backward()
    np.testing.assert_array_equal(y.grad.numpy(), [-np.inf, 0.0, 0.0])


@pytest.mark.parametrize("call", [
    lambda: td.multinomial(td.ones(0, 5), -3), lambda: td.multinomial(td.ones(0, 5), -3, replacement=True),
    lambda: td.one_hot(td.zeros(0, dtype=td.int64), -5),
], ids=["multinomial", "multinomial with replacement", "one_hot"])  # fmt: skip
def test_negative_numbers_of_results_are_refused_though_there_are_no_rows(call):
    with pytest.raises(td.ValueRangeError, match=r"negative|at least 1"):
        call()


PRODUCTS = {
    "vectors": lambda f: (f(1000), f(1000)),
    "a matrix and a vector": lambda f: (f(300, 2000), f(2000)),
    "matrices": lambda f: (f(512, 512), f(512, 512)),
    "with a transposed one": lambda f: (f(512, 512), f(512, 512).T),
    "of a transposed one": lambda f: (f(512, 512).T, f(512, 512)),
    "few rows": lambda f: (f(7, 4096), f(4096, 5)),
    "a batch": lambda f: (f(8, 100, 300), f(8, 300, 50)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_summed_in_parts(name):
    """One sum after another is off by 3e-7 to 6e-7 for these sizes; in parts by what other libraries are off by."""
    rng = np.random.default_rng(0)
    squares = []
    for _ in range(20 if name == "vectors" else 1):
        a, b = PRODUCTS[name](lambda *shape: rng.random(shape, np.float32))
        want = a.astype(np.float64) @ b.astype(np.float64)
        got = (td.from_numpy(a) @ td.from_numpy(b)).numpy()
        squares.append(np.mean(((got - want) / want) ** 2))
    assert np.sqrt(np.mean(squares)) < 1.85e-7


def test_small_products_are_summed_in_parts():
    """Products of a matrix with its own transpose: a sum of 300 terms in a row was off by 2.5e-7."""
    error = total = 0.0
    for seed in range(10):
        x = np.random.default_rng(seed).normal(size=(10, 300)).astype(np.float32)
        want = x.astype(np.float64) @ x.T.astype(np.float64)
        got = (td.from_numpy(x) @ td.from_numpy(x).T).numpy()
        error, total = error + ((got - want) ** 2).sum(), total + (want**2).sum()
    assert np.sqrt(error / total) < 1.2e-7
