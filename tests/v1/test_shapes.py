"""Shapes as tensors."""

import numpy as np
import pytest

import tandem as td
import tandem.v1 as tf
from tests.v1.runs import run


def test_shapes_as_tensors():
    x = tf.placeholder(tf.float32, [None, 6])
    n = tf.shape(x)[0]
    fed = {x: np.arange(24.0).reshape(4, 6)}
    assert run(tf.shape(x), fed).tolist() == [4, 6] and run([n, n * 2 + 1, tf.size(x), tf.rank(x)], fed) == [
        4,
        9,
        24,
        2,
    ]
    assert run(tf.reshape(x, [n, 2, 3]), fed).shape == (4, 2, 3)
    assert run(tf.reshape(x, tf.stack([n * 2, 3])), fed).shape == (8, 3)
    assert run(tf.zeros(tf.shape(x)), fed).shape == (4, 6) and run(tf.ones([n]), fed).shape == (4,)
    assert run(tf.random_normal(tf.shape(x)[:1]), fed).shape == (4,)
    assert run(tf.fill([n, 2], 7), fed).tolist() == [[7, 7]] * 4
    assert run(tf.tile(tf.constant([[1]]), [n, 1]), fed).shape == (4, 1)
    assert run(tf.range(n), fed).tolist() == [0, 1, 2, 3]
    assert run(tf.to_float(n) / 8, fed) == 0.5
    assert tf.zeros(3).get_shape() == (3,) and tf.ones(tf.constant([2, 3])).get_shape() == (2, 3)
    with pytest.raises(td.UnsupportedError, match="computes from values"):
        tf.zeros([tf.to_int32(tf.reduce_sum(x))])
    with pytest.raises(td.UnsupportedError, match="a size is None"):
        tf.zeros([x.get_shape()[0], 2])
