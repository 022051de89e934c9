"""Results whose size depends on the data."""

import numpy as np
import pytest

import tandem as td


@pytest.mark.parametrize("dtype", ["bool", "float32", "int64", "float16"])
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (0,), (2, 0), ()])
def test_nonzero(shape, dtype):
    x = np.asarray(np.random.default_rng(0).integers(0, 2, shape)).astype(dtype)
    t = td.tensor(x)
    np.testing.assert_array_equal(t.nonzero().numpy(), np.argwhere(x))
    np.testing.assert_array_equal(td.argwhere(t).numpy(), np.argwhere(x))
    if shape:
        for got, expected in zip(td.nonzero(t), np.nonzero(x), strict=True):
            np.testing.assert_array_equal(got.numpy(), expected)
    if len(shape) == 2:
        np.testing.assert_array_equal(t.T.nonzero().numpy(), np.argwhere(x.T))


def test_masked_select():
    x = np.arange(12.0).reshape(3, 4)
    t = td.tensor(x, requires_grad=True)
    mask = x % 3 == 0
    out = td.masked_select(t, td.tensor(mask))
    np.testing.assert_array_equal(out.detach().numpy(), x[mask])
    out.sum().backward()
    np.testing.assert_array_equal(t.grad.numpy(), mask.astype(float))
    assert td.masked_select(td.tensor([1, 2]), td.tensor([[True, False], [True, True]])).tolist() == [1, 1, 2]
    np.testing.assert_array_equal(t[td.tensor(mask)].detach().numpy(), x[mask])
