"""Reductions over the elements that a mask has, against NumPy's masked arrays."""

import numpy as np
import pytest

import tandem as td
from tests.check import assert_close

X = np.random.default_rng(0).normal(size=(4, 5))
MASK = np.random.default_rng(1).random((4, 5)) < 0.6
MASK[2] = True
MASK[0, 0] = MASK[1, 1] = MASK[3, 2] = MASK[3, 4] = True
ARRAY = np.ma.array(X, mask=~MASK)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("sum", "sum"), ("prod", "prod"), ("amax", "max"), ("amin", "min"), ("mean", "mean"), ("argmax", "argmax")],
)
def test_reductions_leave_out_what_the_mask_does_not_hold(name, theirs):
    made = getattr(td.masked, name)(td.tensor(X), 1, mask=td.tensor(MASK))
    assert_close(made, np.asarray(getattr(ARRAY, theirs)(1)), rtol=1e-12)


def test_variances_and_norms():
    made = td.masked.var(td.tensor(X), 1, unbiased=False, mask=td.tensor(MASK))
    assert_close(made, np.asarray(ARRAY.var(1)), rtol=1e-10)
    made = td.masked.norm(td.tensor(X), 2.0, 1, mask=td.tensor(MASK))
    assert_close(made, np.sqrt((X**2 * MASK).sum(1)), rtol=1e-12)


def test_softmax_gives_nothing_to_what_is_masked():
    made = td.masked.softmax(td.tensor(X), 1, mask=td.tensor(MASK)).numpy()
    weights = np.exp(X) * MASK
    np.testing.assert_allclose(made[MASK], (weights / weights.sum(1, keepdims=True))[MASK], rtol=1e-12)


def test_gradients_reach_the_elements_of_the_mask_alone():
    x = td.tensor(X, requires_grad=True)
    td.masked.sum(x, 1, mask=td.tensor(MASK)).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), MASK.astype(float))


def test_running_reductions_and_positions_have_the_dtype_of_the_input():
    x = td.tensor([3, 1, 2], dtype=td.int16)
    mask = td.tensor([True, False, True])
    for name, expected in (("cumsum", [3, 3, 5]), ("cumprod", [3, 3, 6])):
        made = getattr(td.masked, name)(x, 0, mask=mask)
        assert made.dtype is td.int16 and made.tolist() == expected
    made = td.masked.argmin(x.to(td.float32), mask=mask)
    assert made.dtype is td.float32 and made.item() == 2.0
