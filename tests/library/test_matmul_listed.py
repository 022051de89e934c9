"""Products that leave out zeros of the left side (src/library/gemm_listed.h).

As in test_matmul_blocked.py elements are small integers where results are compared exactly.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tandem as td
from tandem import _runtime
from tests.library.layouts import run
from tests.library.test_matmul_blocked import matrix


def sparse(rng, rows, columns, density, order="n"):
    a = matrix(rng, rows, columns, "float32", order)
    a[rng.random((rows, columns)) >= density] = 0
    return a


def check(m, n, k, order="nn", density=0.4, bias=False, seed=0):
    rng = np.random.default_rng(seed)
    a, b = sparse(rng, m, k, density, order[0]), matrix(rng, k, n, "float32", order[1])
    inputs = [a, b] + ([rng.integers(-7, 8, n).astype("float32")] if bias else [])
    got = run("matmul", inputs, [((m, n), "float32")])
    expected = a.astype(np.float64) @ b.astype(np.float64) + (inputs[2] if bias else 0)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("order", ["nn", "nt", "tn", "tt", "ss", "sn", "ns"])
@pytest.mark.parametrize(
    "m,n,k",
    [(256, 512, 300), (250, 517, 299), (64, 1001, 1003), (700, 256, 260), (600, 300, 2050), (65, 5000, 113)],
)
def test_sizes_and_orders(m, n, k, order):
    check(m, n, k, order, bias=order in ("nt", "tn"))


@pytest.mark.parametrize("n", [512, 517])  # rows 2 KB apart, and columns that fill no vector
def test_long_sums_are_made_of_several(n):
    check(64, n, 9000, "nn", 0.3, bias=True)


@pytest.mark.parametrize("density", [0, 0.02, 0.2, 0.5, 0.6, 0.65, 0.9])
def test_densities(density):
    check(128, 640, 513, "nn", density)
    check(513, 640, 128, "tn", density, bias=True)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(64, 700),
    st.integers(256, 900),
    st.integers(64, 900),
    st.sampled_from(["nn", "nt", "tn"]),
    st.booleans(),
)
def test_any_size(m, n, k, order, bias):
    check(m, n, k, order, 0.3, bias)


def test_rows_full_and_empty():
    rng = np.random.default_rng(1)
    a, b = sparse(rng, 300, 400, 0.5), matrix(rng, 400, 640, "float32")
    a[::3] = 0
    a[1::3] = 3
    a[2::3] = sparse(rng, 100, 400, 0.2)
    np.testing.assert_array_equal(run("matmul", [a, b], [((300, 640), "float32")]), a @ b)
    for turned in (a, np.ascontiguousarray(a.T).T):
        np.testing.assert_array_equal(run("matmul", [turned, b], [((300, 640), "float32")]), a @ b)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("order", ["nn", "nt"])
@pytest.mark.parametrize("m,k", [(256, 1000), (500, 256)])
def test_zeros_times_what_is_not_finite(m, k, order, value):
    # 0 * inf is NaN, as it is in a product that leaves nothing out.
    rng = np.random.default_rng(2)
    a, b = sparse(rng, m, k, 0.3), matrix(rng, k, 517, "float32", order[1])
    b[5, 7] = b[k - 1, 516] = value
    got = run("matmul", [a, b], [((m, 517), "float32")])
    with np.errstate(invalid="ignore"):
        expected = a @ b
    np.testing.assert_array_equal(got, expected)
    assert np.isnan(got[:, 7]).any() and np.isfinite(got[:, 8:516]).all()


def test_nan_on_the_left_stays():
    rng = np.random.default_rng(3)
    a, b = sparse(rng, 256, 512, 0.3), matrix(rng, 512, 512, "float32")
    a[3, 5], a[7, 511] = np.nan, np.inf
    got = run("matmul", [a, b], [((256, 512), "float32")])
    assert np.isnan(got[3]).all() and not np.isfinite(got[7]).any()
    rest = np.delete(got, [3, 7], axis=0)
    np.testing.assert_array_equal(rest, np.delete(a, [3, 7], axis=0) @ b)


@pytest.mark.usefixtures("own_products")
def test_results_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(4)
    before = td.get_num_threads()
    try:
        for m, n, k in [(256, 1000, 1200), (1100, 700, 250)]:
            x = np.maximum(rng.standard_normal((m, k), "float32"), 0)
            b = rng.standard_normal((k, n), "float32")
            results = []
            for threads in (1, 2, 3):
                td.set_num_threads(threads)
                results.append(run("matmul", [x, b], [((m, n), "float32")]))
            np.testing.assert_array_equal(results[0], results[1])
            np.testing.assert_array_equal(results[0], results[2])
    finally:
        td.set_num_threads(before)


@pytest.mark.skipif(_runtime.cpu_level() != "x86-64-v3", reason="used with AVX2")
def test_zeros_are_left_out():
    # The same sums in another order have other bits: with lists elements of a slice follow one another.
    rng = np.random.default_rng(5)
    x = np.maximum(rng.standard_normal((256, 600), "float32"), 0)
    b = rng.standard_normal((600, 512), "float32")
    listed = run("matmul", [x, b], [((256, 512), "float32")])
    tiles = run("matmul", [np.where(x == 0, np.float32(1e-40), x), b], [((256, 512), "float32")])
    exact = x.astype(np.float64) @ b.astype(np.float64)
    assert (listed != tiles).any()
    assert np.abs(listed - exact).max() <= 1.5 * np.abs(tiles - exact).max()


def test_compiled_training_step_agrees_with_eager():
    def train(compiled):
        td.manual_seed(0)
        model = td.nn.Sequential(
            td.nn.Linear(300, 520), td.nn.ReLU(), td.nn.Linear(520, 650), td.nn.ReLU(), td.nn.Linear(650, 10)
        )
        optimizer = td.optim.Adam(model.parameters(), lr=1e-3)
        x, y = td.randn(128, 300), td.randint(0, 10, (128,))

        def step():
            optimizer.zero_grad()
            loss = td.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run_step = td.compile(step) if compiled else step
        losses = [run_step().item() for _ in range(6)]
        return losses, [p.detach().numpy() for p in model.parameters()]

    losses, parameters = train(False)
    compiled_losses, compiled_parameters = train(True)
    np.testing.assert_allclose(compiled_losses, losses, rtol=1e-4)
    for p, q in zip(compiled_parameters, parameters, strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-2, atol=2e-4)
