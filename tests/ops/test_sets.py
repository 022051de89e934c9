"""Different elements, as the array API standard has them."""

import math

import numpy as np
import pytest

import tandem as td
from tests.array_api import standard

REAL = [getattr(td, name) for name in standard.DTYPES if not name.startswith("complex")]


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_different_elements(dtype):
    data = np.random.default_rng(0).integers(0, 2 if dtype is td.bool else 5, (3, 7)).astype(dtype.numpy)
    x = td.asarray(data)
    values, indices, inverse, counts = np.unique(data, return_index=True, return_inverse=True, return_counts=True)
    out = td.unique_all(x)
    assert out._fields == ("values", "indices", "inverse_indices", "counts")
    for got, wanted in zip(out, (values, indices, inverse.reshape(3, 7), counts), strict=True):
        np.testing.assert_array_equal(got.numpy(), wanted)
    assert out.values.dtype is dtype and out.indices.dtype is out.inverse_indices.dtype is out.counts.dtype is td.int64
    assert td.unique_counts(x)._fields == ("values", "counts")
    assert td.unique_counts(x).counts.tolist() == counts.tolist()
    assert td.unique_inverse(x)._fields == ("values", "inverse_indices")
    assert td.array_equal(td.unique_inverse(x).values[td.unique_inverse(x).inverse_indices], x)
    assert td.unique_values(x).tolist() == values.tolist()
    for function in (td.unique_all, td.unique_counts, td.unique_inverse):
        assert function(td.zeros((2, 0), dtype=dtype)).values.shape == (0,)
        assert function(td.zeros((), dtype=dtype)).values.shape == (1,)


def test_every_nan_is_different_and_zeros_are_the_same():
    out = td.unique_all(td.asarray([math.nan, 0.0, -0.0, 1.0, math.nan]))
    assert str(out.values.tolist()) == "[0.0, 1.0, nan, nan]" and out.counts.tolist() == [2, 1, 1, 1]
    assert out.indices.tolist() == [1, 3, 0, 4] and out.inverse_indices.tolist() == [2, 0, 0, 1, 3]


def test_different_integers_far_apart():
    for data in ([5, -(2**62), 5, 2**62], [-3, -3, 10], [2**62]):
        values, counts = np.unique(data, return_counts=True)
        out = td.unique_counts(td.asarray(data))
        assert out.values.tolist() == values.tolist() and out.counts.tolist() == counts.tolist()
        inverse = td.unique_inverse(td.asarray(data)).inverse_indices
        assert inverse.tolist() == np.unique(data, return_inverse=True)[1].tolist()
        assert td.unique_values(td.asarray(data)).tolist() == values.tolist()
