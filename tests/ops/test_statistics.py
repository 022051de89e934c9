"""Variances, norms and differences."""

import numpy as np
import pytest
import scipy.special

import tandem as td
from tests.check import check_op
from tests.ops.operands import distinct

INF, NAN = float("inf"), float("nan")


# -- summaries


@pytest.mark.parametrize("correction", [0, 1, 0.5])
def test_variance(correction):
    x = distinct((3, 5))
    check_op(td.var, lambda a: a.var(1, ddof=correction), inputs=[(x,)], kwargs={"axis": 1, "correction": correction})
    check_op(td.std, lambda a: a.std(1, ddof=correction), inputs=[(x,)], kwargs={"axis": 1, "correction": correction})


def test_variance_forms():
    x = td.tensor([[1.0, 2.0, 4.0], [3.0, 3.0, 3.0]])
    np.testing.assert_allclose(td.var(x, 1, unbiased=True).numpy(), np.var(x.numpy(), axis=1, ddof=1), rtol=1e-6)
    np.testing.assert_allclose(x.std(1).numpy(), np.std(x.numpy(), axis=1, ddof=1), rtol=1e-6)
    np.testing.assert_allclose(td.std(x, 1).numpy(), np.std(x.numpy(), axis=1), rtol=1e-6)
    for function, reference in ((td.var_mean, np.var), (td.std_mean, np.std)):
        spread, mean = function(x, 1, keepdims=True)
        np.testing.assert_allclose(spread.numpy(), reference(x.numpy(), axis=1, keepdims=True, ddof=1), rtol=1e-6)
        np.testing.assert_allclose(mean.numpy(), x.numpy().mean(1, keepdims=True), rtol=1e-6)
    check_op(td.var_mean, lambda a: (a.var(0, ddof=1), a.mean(0)), inputs=[(distinct((3, 4)),)], kwargs={"axis": 0})
    check_op(
        td.std_mean,
        lambda a: (a.std(0, ddof=1), a.mean(0)),
        inputs=[(distinct((3, 4)),)],
        kwargs={"axis": 0},
        second=False,
    )
    flat = td.tensor([2.0, 2.0], requires_grad=True)
    td.std(flat).backward()
    assert flat.grad.tolist() == [0, 0]  # not NaN
    # Numbers far from zero keep their digits: the mean is taken off first.
    far = np.random.default_rng(0).normal(1e4, 1, 1000).astype(np.float32)
    np.testing.assert_allclose(td.var(td.tensor(far)).item(), far.astype(np.float64).var(), rtol=1e-4)
    assert np.isnan(td.var(td.tensor([1.0]), correction=1).item())


def test_logsumexp():
    check_op(td.logsumexp, lambda x: scipy.special.logsumexp(x, axis=1), shapes=[(3, 4)], kwargs={"axis": 1})
    check_op(td.logsumexp, scipy.special.logsumexp, shapes=[(3, 4), ()])
    x = np.array([[-INF, -INF], [INF, 1.0], [1e30, 1e30], [NAN, 0.0]], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(td.logsumexp(td.tensor(x), 1).numpy(), scipy.special.logsumexp(x, axis=1), rtol=1e-6)


@pytest.mark.parametrize("p", [1, 2, 3, 2.5, 0.5, INF, -INF, -1])
def test_norms(p):
    check_op(td.norm, lambda x: np.linalg.norm(x, p, axis=1), inputs=[(distinct((3, 4)) + 1.5,)], kwargs={"p": p, "axis": 1},
             names=["norm", "vector_norm"])  # fmt: skip


def test_norm_forms():
    x = distinct((3, 4))
    np.testing.assert_allclose(td.norm(td.tensor(x)).item(), np.linalg.norm(x))
    assert td.norm(td.tensor([0.0, 2.0, 0.0]), 0).item() == 1
    zero = td.zeros(3, requires_grad=True)
    for p in (1, 2, 3, 2.5):
        zero.grad = None
        td.norm(zero, p).backward()
        assert zero.grad.tolist() == [0, 0, 0]


def test_diff():
    x = distinct((3, 5))
    check_op(td.diff, lambda a: np.diff(a), inputs=[(x,)])
    check_op(td.diff, lambda a: np.diff(a, 2, 0), inputs=[(x,)], kwargs={"n": 2, "axis": 0})
    assert td.diff(td.tensor([True, False, False])).tolist() == [True, False]
    assert td.diff(td.tensor([1])).shape == (0,)


def test_variances_of_few_elements_are_rounded_once():
    x = np.random.default_rng(3).normal(size=(7, 500)).astype("float32")
    expected = x.astype("float64").var(0, ddof=1)
    error = td.tensor(x).var(0).numpy() / expected - 1
    assert np.abs(error).max() <= 2**-23


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("offset", [0, 40])
def test_variances_of_many_elements_are_as_good_as_single_ones(dtype, offset):
    x = td.tensor((np.random.default_rng(3).normal(size=(3000, 40)) + offset).astype("float32")).to(getattr(td, dtype))
    for axis, along in ((0, x), (1, x.T.contiguous())):
        wide = along.to(td.float64).numpy()
        found = td.var(along, axis).to(td.float64).numpy()
        np.testing.assert_allclose(found, wide.var(axis), {"float32": 1.5e-7, "bfloat16": 4e-3, "float16": 5e-4}[dtype])
