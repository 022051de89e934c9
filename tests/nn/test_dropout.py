"""Dropout layers."""

import numpy as np
import pytest

import tandem as td
from tandem import nn


def test_dropout_acts_while_training_only():
    td.manual_seed(0)
    x = td.ones(4, 6, 5, 5)
    for layer in (nn.Dropout(0.4), nn.Dropout2d(0.4), nn.AlphaDropout(0.4), nn.FeatureAlphaDropout(0.4)):
        assert layer(x).tolist() != x.tolist() and layer.eval()(x) is x
    channels = nn.Dropout2d(0.5)(x).numpy()
    assert (channels == channels[:, :, :1, :1]).all() and set(np.unique(channels)) == {0.0, 2.0}
    assert nn.Dropout1d()(x[0]).shape == (6, 5, 5) and nn.Dropout3d()(td.ones(2, 2, 2, 2, 2)).shape == (2, 2, 2, 2, 2)
    with pytest.raises(ValueError, match="probability"):
        nn.Dropout(1.5)
