"""Functions of tf.nn."""

import numpy as np
import pytest

import tandem as td
import tandem.v1 as tf
from tests.v1.runs import run


def test_more_of_nn():
    x = np.random.default_rng(0).standard_normal((2, 5, 5, 3)).astype("f")
    valid = run(tf.nn.avg_pool(tf.constant(x), [1, 2, 2, 1], [1, 2, 2, 1], "VALID"))
    np.testing.assert_allclose(valid[0, 0, 0], x[0, :2, :2].mean((0, 1)), rtol=1e-5)
    same = run(tf.nn.avg_pool(tf.constant(x), [1, 2, 2, 1], [1, 2, 2, 1], "SAME"))
    assert same.shape == (2, 3, 3, 3)
    np.testing.assert_allclose(same[0, 2, 2], x[0, 4, 4], rtol=1e-5)  # one element is there, three are added
    values, indices = run(tf.nn.top_k(tf.constant([[1.0, 9.0, 4.0]]), 2))
    assert values.tolist() == [[9, 4]] and indices.tolist() == [[1, 2]] and indices.dtype == np.int32
    mean, variance = tf.nn.moments(tf.constant(x), [0, 1, 2])
    normal = run(tf.nn.batch_normalization(tf.constant(x), mean, variance, None, None, 1e-5))
    np.testing.assert_allclose(normal.mean((0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(normal.std((0, 1, 2)), 1, rtol=1e-3)
    scaled = run(tf.nn.batch_normalization(tf.constant(x), mean, variance, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0], 1e-5))
    np.testing.assert_allclose(scaled, normal * 2 + [1, 2, 3], rtol=1e-4, atol=1e-5)
    dropped = tf.nn.dropout(tf.ones([4, 100]), keep_prob=0.5, noise_shape=[4, 1], seed=3)
    assert all(len(set(row)) == 1 for row in run(dropped).tolist())
    with pytest.raises(td.ValueRangeError, match="'SAME' or 'VALID'"):
        tf.nn.avg_pool(tf.constant(x), [1, 2, 2, 1], [1, 2, 2, 1], "FULL")
