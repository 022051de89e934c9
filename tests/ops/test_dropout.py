import numpy as np
import pytest

import tandem as td
from tests.check import CHECKED, assert_close

CHECKED.update(["dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"])


def test_dropout_zeroes_and_scales():
    td.manual_seed(0)
    x = td.ones(100, 100)
    y = td.dropout(x, 0.25).numpy()
    values = np.unique(y)
    np.testing.assert_allclose(values, [0, 4 / 3], rtol=1e-6)
    assert abs((y == 0).mean() - 0.25) < 0.02
    assert td.dropout(x, 0.5, training=False) is x
    assert td.dropout(x, 0.0) is x
    assert td.dropout(x, 1.0).sum().item() == 0


def test_gradient_has_the_same_mask():
    x = td.ones(50, 7, requires_grad=True)
    y = td.dropout(x, 0.5)
    y.sum().backward()
    assert_close(x.grad, y.detach().numpy())


def test_generator_decides():
    draws = [td.dropout(td.ones(64), 0.5, generator=td.Generator(7)).numpy() for _ in range(2)]
    assert (draws[0] == draws[1]).all()
    td.manual_seed(3)
    first, second = td.dropout(td.ones(64), 0.5), td.dropout(td.ones(64), 0.5)
    assert (first.numpy() != second.numpy()).any()


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_whole_channels(spatial):
    op = (td.dropout1d, td.dropout2d, td.dropout3d)[spatial - 1]
    y = op(td.ones(8, 16, *(2,) * spatial), 0.5).numpy().reshape(8, 16, -1)
    assert (y == y[:, :, :1]).all() and 0 < (y == 0).mean() < 1
    assert op(td.ones(16, *(2,) * spatial), 0.5).shape == (16, *(2,) * spatial)
    with pytest.raises(td.ShapeError, match="spatial"):
        op(td.ones(3), 0.5)


def test_alpha_dropout_keeps_mean_and_variance():
    td.manual_seed(1)
    x = td.randn(200, 200)
    y = td.alpha_dropout(x, 0.3, training=True).numpy()
    assert abs(y.mean()) < 0.03 and abs(y.var() - 1) < 0.05
    z = td.feature_alpha_dropout(td.ones(8, 16, 4), 0.5, training=True).numpy()
    assert (z == z[:, :, :1]).all()


def test_probability_is_checked():
    with pytest.raises(td.ValueRangeError, match="probability"):
        td.dropout(td.ones(2), 1.5)
