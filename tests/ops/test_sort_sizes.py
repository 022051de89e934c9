"""Sorting, selecting and searching at sizes on both sides of where methods change, for all kinds of distributions."""

import numpy as np
import pytest

import tandem as td

SIZES = (1, 5, 47, 48, 200, 1000, 5000, 20000, 40000)


def lines(dtype, n):
    rng = np.random.default_rng(n)
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        yield "all", rng.integers(info.min, info.max, n, dtype, endpoint=True)
        yield "few", rng.integers(0, 4, n).astype(dtype)
        yield "one", np.full(n, 3, dtype)
        return
    yield "normal", rng.normal(size=n).astype(dtype)
    yield "skewed", np.exp(rng.normal(size=n) * 2).astype(dtype)
    yield "few", rng.integers(-2, 2, n).astype(dtype)
    special = rng.normal(size=n).astype(dtype)
    special[:: max(n // 7, 1)] = np.nan
    special[1 :: max(n // 5, 1)] = np.inf
    special[2 :: max(n // 5, 1)] = -np.inf
    yield "special", special
    zeros = rng.normal(size=n).astype(dtype)
    zeros[::3], zeros[1::3] = 0.0, -0.0
    yield "zeros", zeros


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "int16", "uint8", "uint32"])
def test_sort(dtype):
    for n in SIZES:
        for name, x in lines(dtype, n):
            t = td.tensor(x)
            expected = np.sort(x, kind="stable")
            made = td.sort(t).numpy()
            np.testing.assert_array_equal(made, expected, err_msg=f"{name} {n}")
            order = td.argsort(t).numpy()
            np.testing.assert_array_equal(order, np.argsort(x, kind="stable"), err_msg=f"{name} {n}")
            if name == "zeros":  # of zeros, -0.0 comes first
                bits = np.signbit(made[made == 0])
                assert (np.sort(bits)[::-1] == bits).all()
            down = td.sort(t, descending=True).numpy()
            np.testing.assert_array_equal(down, expected[::-1], err_msg=f"{name} {n}")


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "int8"])
def test_median_and_kthvalue(dtype):
    wide = "float32" if dtype == "bfloat16" else dtype
    for n in SIZES[:-1]:
        for name, x in lines(wide, n):
            t = td.tensor(x).to(getattr(td, dtype))
            x = t.to(getattr(td, wide)).numpy()
            order = np.argsort(x, kind="stable")
            for k in {1, (n + 1) // 2, n}:
                value, index = td.kthvalue(t, k)
                assert index.item() == order[k - 1], (name, n, k)
                np.testing.assert_array_equal(value.to(getattr(td, wide)).numpy(), x[order[k - 1]])
            value, index = td.median(t, 0)
            wanted = np.flatnonzero(np.isnan(x))[0] if np.isnan(x).any() else order[(n - 1) // 2]
            assert index.item() == wanted, (name, n)
            np.testing.assert_array_equal(td.median(t).to(getattr(td, wide)).numpy(), x[wanted])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_argmax_and_argmin(dtype):
    for n in (1, 7, 100, 1024, 5000, 70000, 200000):
        for name, x in lines(dtype, n):
            t = td.tensor(x)
            assert td.argmax(t).item() == np.argmax(x), (name, n)
            assert td.argmin(t).item() == np.argmin(x), (name, n)
    x = np.random.default_rng(0).normal(size=(3, 40, 50)).astype(dtype)
    np.testing.assert_array_equal(td.argmax(td.tensor(x), -1).numpy(), x.argmax(-1))
    np.testing.assert_array_equal(td.argmin(td.tensor(x), 1).numpy(), x.argmin(1))
    np.testing.assert_array_equal(td.argmax(td.tensor(x).transpose(0, 2), 2).numpy(), x.swapaxes(0, 2).argmax(2))
    np.testing.assert_array_equal(
        td.argmax(td.tensor(x)[:, ::2], -1, keepdims=True).numpy(), x[:, ::2].argmax(-1)[..., None]
    )


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float32", "float16"])
def test_any_and_all_find_the_one_element(dtype):
    for n in (1, 63, 64, 1000, 20000, 100000):
        for at in {0, n // 2, n - 1}:
            zeros, ones = np.zeros(n, dtype), np.ones(n, dtype)
            assert not td.any(td.tensor(zeros)).item() and td.all(td.tensor(ones)).item()
            zeros[at], ones[at] = 1, 0
            assert td.any(td.tensor(zeros)).item() and not td.all(td.tensor(ones)).item()
    high = np.full(100, 0x80, "uint8")
    assert td.all(td.tensor(high)).item() and td.any(td.tensor(high)).item()
    assert td.any(td.tensor([float("nan")])).item()
    assert not td.any(td.zeros(0)).item() and td.all(td.zeros(0)).item()
    assert td.any(td.zeros(4, 4).T).item() is False


def test_isin_by_table():
    rng = np.random.default_rng(0)
    for dtype in ("int64", "int8", "uint64", "float32", "float16"):
        x, values = rng.integers(0, 100, (30, 40)).astype(dtype), rng.integers(0, 60, 33).astype(dtype)
        np.testing.assert_array_equal(td.isin(td.tensor(x), td.tensor(values)).numpy(), np.isin(x, values))
        made = td.isin(td.tensor(x).T, td.tensor(values)[::2], invert=True).numpy()
        np.testing.assert_array_equal(made, np.isin(x.T, values[::2], invert=True))
    odd = td.tensor([float("nan"), 0.0, -0.0, 1.0])
    assert td.isin(odd, td.cat([odd[:2], td.arange(10.0) + 5])).tolist() == [False, True, True, False]
