"""What chance has found, kept so that it stays found."""

import numpy as np
import pytest

import tandem as td


def test_views_of_numbers():
    assert td.flip(False).tolist() is False
    assert td.squeeze(2.5).dtype is td.float32


@pytest.mark.parametrize("shape", [(2, -2, 2), (-3,), (-(2**63),)])
def test_negative_sizes(shape):
    for make in (td.zeros, lambda s: td.tensor(1).expand(s), lambda s: td.tensor(1).reshape(s)):
        with pytest.raises(td.ShapeError):
            make(shape)


def test_sizes_beyond_64_bits():
    for call in (
        lambda: td.zeros((2**62, 4)),
        lambda: td.ones(3).repeat(2**62, 8),
        lambda: td.diag_embed(td.ones(2), -(2**63)),
        lambda: td.arange(5).expand(2**62, 5).contiguous(),
    ):
        with pytest.raises(MemoryError):
            call()
    assert td.roll(td.arange(5), -(2**63)).tolist() == np.roll(np.arange(5), -(2**63) % 5).tolist()


def test_static_arguments_from_numpy():
    x = td.ones((2, 3))
    assert float(td.sum(x, axis=(np.int64(0), np.int32(1)))) == 6
    assert td.sum(x, axis=np.int8(1)).tolist() == [3, 3]
    for axis in (td.tensor(0), [td.tensor(0)], (0, (td.tensor(1),))):
        with pytest.raises(TypeError, match="axis is a tensor"):
            td.sum(x, axis=axis)


def test_one_axis_named_twice():
    with pytest.raises(td.ValueRangeError, match="twice"):
        td.unsqueeze(td.ones(3), (0, 0))


def test_endless_code():
    with pytest.raises(td.ValueRangeError, match="from 0 to 32"):
        td.polygamma(10**30, td.ones(2))
    with pytest.raises(td.ValueRangeError, match="from 1 to 1000"):
        td.mvlgamma(td.ones(1), 2**62)


def test_decompositions_of_what_is_no_matrix():
    for call in (td.svd_lowrank, td.pca_lowrank):
        with pytest.raises(td.DTypeError, match="A is of type NoneType"):
            call(None)
        with pytest.raises(td.ShapeError, match="matrices have two axes"):
            call(td.ones(4), q=3)
        with pytest.raises(td.DTypeError, match="q is of type float"):
            call(td.ones(4, 4), q=2.5)
