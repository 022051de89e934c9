import numpy as np
import pytest

import tandem as td
from tests.check import CHECKED, assert_close

CHECKED.update(["contiguous", "is_contiguous"])


def test_channels_last():
    array = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    x = td.tensor(array, requires_grad=True)
    y = x.to(memory_format=td.channels_last)
    assert y.strides == (60, 1, 15, 3) and y.is_contiguous(memory_format=td.channels_last) and not y.is_contiguous()
    assert_close(y, array)
    assert y.to(td.channels_last) is y
    assert y.contiguous(memory_format=td.channels_last) is y
    assert y.contiguous().is_contiguous() and x.contiguous() is x
    (y * y).sum().backward()
    assert_close(x.grad, 2 * array)
    assert (y + 1).is_contiguous(memory_format=td.channels_last)


def test_other_formats():
    x = td.zeros(2, 3, 2, 2, 2)
    assert x.contiguous(memory_format=td.channels_last_3d).strides == (24, 1, 12, 6, 3)
    assert x.to(memory_format=td.preserve_format) is x
    assert x.to(td.float64, memory_format=td.channels_last_3d).dtype == td.float64
    assert repr(td.channels_last) == "tandem.channels_last"
    with pytest.raises(td.ShapeError, match="4 axes"):
        x.to(memory_format=td.channels_last)
    assert td.zeros(2, 1, 3, 3).is_contiguous(memory_format=td.channels_last)


def test_functional_namespace():
    import tandem.nn.functional as F

    assert F.relu is td.relu and F.conv2d is td.conv2d and "cross_entropy" in F.__all__
