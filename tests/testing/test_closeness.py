"""assert_close."""

import pytest

import tandem as td


def test_assert_close():
    close = td.testing.assert_close
    close({"a": [td.tensor([1.0, 2.0])]}, {"a": [td.tensor([1.0, 2.0000001])]})
    close(1.0, 1.0)
    with pytest.raises(AssertionError, match=r"1 of 2 elements differ at \['a'\]\[0\]; most at \(1,\)"):
        close({"a": [td.tensor([1.0, 2.0])]}, {"a": [td.tensor([1.0, 2.1])]})
    with pytest.raises(AssertionError, match="dtypes"):
        close(td.tensor([1.0]), td.tensor([1.0], dtype=td.float64))
    with pytest.raises(AssertionError, match="shapes"):
        close(td.zeros(2), td.zeros(3))
    with pytest.raises(AssertionError, match="elements differ"):
        close(td.tensor([1, 2]), td.tensor([1, 3]))
    with pytest.raises(AssertionError):
        close(td.tensor([float("nan")]), td.tensor([float("nan")]))
    close(td.tensor([float("nan")]), td.tensor([float("nan")]), equal_nan=True)
